# SPDX-License-Identifier: Apache-2.0
"""Runs pretrain_gpt.py of Megatron-LM, unchanged, on a CPU over gloo, with the hook; for tests only.

$MEGATRON_LM names the source tree, a tag from core_v0.16.1 to core_v0.19.0. Its megatron.core is used, not an installed
one.
"""

import os
import sys
import types
from pathlib import Path

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # before torch is imported: compiling would take most of the time
TREE = Path(os.environ["MEGATRON_LM"])
SITE = Path(__file__).parent / "megatron_site"  # for the processes that the ranks start
sys.path.insert(0, str(TREE))

import megatron_stubs  # noqa: F401 - before megatron-core is imported

import functools
import hashlib
import importlib.metadata
import importlib.util

import harness
import megatron_cpu
import megatron_hold
import torch
import torch.distributed as dist

from megatron.training import initialize, training
from tierckpt.adapters.megatron import easyckpt

megatron_cpu.patch()
ON_CPU = """--distributed-backend gloo --mock-data --tokenizer-type NullTokenizer --vocab-size 127 --num-layers 2
    --hidden-size 32 --num-attention-heads 2 --seq-length 16 --max-position-embeddings 16 --micro-batch-size 1
    --global-batch-size 4 --lr 1e-2 --min-lr 1e-3 --lr-decay-iters 20 --transformer-impl local
    --no-gradient-accumulation-fusion --no-persist-layer-norm --no-masked-softmax-fusion --no-bias-gelu-fusion
    --no-bias-dropout-fusion --attention-dropout 0.1 --hidden-dropout 0.1 --use-cpu-initialization --log-interval 1
    --eval-iters 0 --eval-interval 1000 --num-workers 0 --no-create-attention-mask-in-dataloader --no-rope-fusion
    --attention-backend unfused""".split()


def _patch():
    """Replaces the GPU calls of pretrain() that are not in megatron-core."""
    nothing = lambda *_, **__: None  # noqa: E731
    for name in ("set_device", "empty_cache"):
        setattr(torch.cuda, name, nothing)
    for name in ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved"):
        setattr(torch.cuda, name, lambda *_, **__: 0)
    torch.cuda.memory_stats = lambda *_, **__: {}
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_capability = lambda *_, **__: (8, 0)
    torch.cuda.get_device_properties = lambda *_, **__: types.SimpleNamespace(
        major=8, minor=0, multi_processor_count=1, name="cpu", total_memory=1 << 30)
    for name in ("FloatTensor", "IntTensor", "LongTensor", "DoubleTensor", "ByteTensor"):
        setattr(torch.cuda, name, getattr(torch, name))
    torch.nn.Module.cuda = lambda module, *_, **__: module
    os.environ["PYTHONPATH"] = os.pathsep.join([str(SITE), os.environ.get("PYTHONPATH", "")])
    initialize._compile_dependencies = nothing
    _take_helpers()
    training.initialize_megatron = functools.partial(training.initialize_megatron, allow_no_cuda=True)


def _take_helpers():
    """Uses the compiled part of Megatron's data sets from the installed package; a source tree would have to compile
    it."""
    name = "megatron.core.datasets.helpers_cpp"
    file = next(file for file in importlib.metadata.files("megatron-core") if "helpers_cpp" in file.name
                and file.suffix == ".so")
    spec = importlib.util.spec_from_file_location(name, file.locate())
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])


class _Watch:
    """Records the state after each iteration, and ends the process where the test requires it."""

    def __init__(self, die_at):
        self.ends = {}
        self.first = None
        self._die_at = die_at
        self._step = training.train_step
        self._decide = training.checkpoint_and_decide_exit
        training.train_step = self._train_step
        training.checkpoint_and_decide_exit = self._after

    def _train_step(self, forward, data, model, optimizer, *arguments, **keywords):
        answer = self._step(forward, data, model, optimizer, *arguments, **keywords)
        self._losses = {key: value.tolist() for key, value in answer[0].items()}
        return answer

    def _after(self, model, optimizer, scheduler, iteration, flops, *arguments, **keywords):
        leaves = self._decide(model, optimizer, scheduler, iteration, flops, *arguments, **keywords)
        args = training.get_args()
        self.first = iteration if self.first is None else self.first
        self.ends[iteration] = [self._losses, _digest(optimizer), args.consumed_train_samples, flops,
                                scheduler.state_dict()["num_steps"]]
        ours = sys.modules["tierckpt.megatron"].checkpoint() if "tierckpt.megatron" in sys.modules else None
        if ours is not None and ours.stats().saves_started > 0:
            ours.wait("committed")  # the steps are so short that saves would be skipped
        if ours is not None:
            self._until_written(iteration, ours)
        if iteration == self._die_at:
            dist.barrier()
            harness.die()
        return leaves

    def _until_written(self, iteration, ours):
        """The steps are so short that nothing would be written before the next one."""
        if not megatron_hold.is_held() or iteration < megatron_hold.iteration():
            easyckpt.wait_for_stock()
        elif iteration == megatron_hold.iteration():
            megatron_hold.wait_until_held()
        elif iteration == 5 and self._die_at is None:
            megatron_hold.release()
        health = ours.health()
        if not health.storage_ok:
            print(f"health at {iteration}: {health.undrained_count}: {health.storage_text}", flush=True)


def _digest(optimizer) -> str:
    """A digest of the optimizers' parameters, their state, and the generators. The model's copies of the parameters are
    not included, because they may be gathered later; the losses depend on them."""
    total = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    for part in optimizer.chained_optimizers:
        for group in part.optimizer.param_groups:
            for param in group["params"]:
                state = part.optimizer.state[param]
                for tensor in (param, *(state[key] for key in sorted(state))):
                    total.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def pretrain(rank, world, arguments, environment=None, die_at=None, by_hand=False):
    """Returns the first iteration and the result of each one. Without an environment for it, Tierckpt is not used.
    by_hand: the hook does not know how Megatron's loop saves, so what goes to storage is saved as in a loop by hand."""
    _patch()
    if by_hand:
        save = training.save_checkpoint_and_time
        training.save_checkpoint_and_time = lambda *positional, **keywords: save(*positional, **keywords)
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank), CUDA_DEVICE_MAX_CONNECTIONS="1")
    if world == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    if environment is not None:
        os.environ.update(environment)
        __import__("tierckpt.megatron.hook")  # the module under test
    watch = _Watch(die_at)
    sys.argv = ["pretrain_gpt.py", *ON_CPU, *arguments]
    program = str(TREE / "pretrain_gpt.py")
    try:
        exec(compile(Path(program).read_text(), program, "exec"), {"__name__": "__main__", "__file__": program})
    except SystemExit as leaves:
        assert not leaves.code
    return [watch.first, watch.ends]
