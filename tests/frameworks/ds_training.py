# SPDX-License-Identifier: Apache-2.0
"""A small training with DeepSpeed in which every step depends on everything that a checkpoint must restore."""

import hashlib
import os
import random
import sys
from pathlib import Path

import deepspeed
import numpy
import torch
import torch._inductor.compile_fx  # noqa: F401 - these are modules that the first initialize would import in each rank
from deepspeed.module_inject import auto_ep_layer  # noqa: F401
from deepspeed.runtime.superoffload import superoffload_stage3  # noqa: F401
from deepspeed.runtime.zero.muon import original_muon  # noqa: F401
from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
from torch import nn

import moved
import tierckpt.deepspeed
from counted import count
from harness import die

# Its shared memory collectives are a C++ extension, built at the first use on a CPU; gloo is sufficient.
sys.modules["deepspeed.comm.torch"].build_shm_op = lambda: None
# Its other extensions are loaded by ninja, which is installed beside the interpreter.
os.environ["PATH"] = os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)])
# oneDNN's fast 16-bit kernels are not needed; torch's plain ones are sufficient.
deepspeed.accelerator.get_accelerator().is_fp16_supported = lambda: True
deepspeed.utils.logger.setLevel("ERROR")

WORDS, WIDTH, BATCH = 31, 9, 2

KINDS = {
    "z0-fp32": {}, "z0-bf16": {}, "z0-fp16": {},
    "z1-fp32": {}, "z1-bf16": {}, "z1-fp16": {},
    "z1-bf16-fp32grads": {"data_types": {"grad_accum_dtype": "fp32"}},
    "z2-fp32": {}, "z2-bf16": {},
    "z3-fp32": {}, "z3-bf16": {},
    "z2-bf16-offload": {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}},
    "z3-bf16-offload": {"zero_optimization": {"offload_optimizer": {"device": "cpu"},
                                              "offload_param": {"device": "cpu"}}},
    "z2-bf16-cpuadam": {"zero_optimization": {"offload_optimizer": {"device": "cpu"}},
                        "optimizer": {"type": "AdamW", "params": {"lr": 1e-2}}},
    "z3-fp32-cpuadam": {"zero_optimization": {"offload_optimizer": {"device": "cpu"}},
                        "optimizer": {"type": "Adam", "params": {"lr": 1e-2}}},
    "z2-fp32-torchadam": {"optimizer": {"type": "AdamW", "params": {"lr": 1e-2, "torch_adam": True}},
                          "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 4}}},
}


def ds_config(kind):
    stage, dtype = int(kind[1]), kind.split("-")[1]
    config = {"train_micro_batch_size_per_gpu": BATCH, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
              "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10**9,
              **KINDS[kind]}
    config["zero_optimization"] = {"stage": stage, "stage3_param_persistence_threshold": 20,
                                   **KINDS[kind].get("zero_optimization", {})}
    if dtype == "bf16":
        config["bf16"] = {"enabled": True}
    if dtype == "fp16":  # a scale that first overflows, is halved, and soon grows again
        config["fp16"] = {"enabled": True, "initial_scale_power": 18, "loss_scale_window": 2, "hysteresis": 1}
    return config


class Net(nn.Module):
    """Odd sizes, so that partitions are padded and cut through parameters; a buffer, dropout, a frozen parameter."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.head = count(nn.Linear(WIDTH, WORDS))
        self.frozen = nn.Parameter(torch.ones(WIDTH), requires_grad=False)
        self.dropout = nn.Dropout(0.1)
        self.register_buffer("passes", torch.zeros(1))

    def forward(self, words):
        self.passes += 1
        hidden = self.words(words) * self.frozen
        for layer in self.layers:
            hidden = self.dropout(torch.relu(layer(hidden))) + hidden
        scores = self.head(hidden).float().view(-1, WORDS)
        return nn.functional.cross_entropy(scores, ((words + 1) % WORDS).view(-1))


def make_engine(rank, kind, seed=0):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    config = ds_config(kind)
    torch.manual_seed(seed)
    net = Net()
    trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
    optimizer = scheduler = None
    if "optimizer" not in config:
        optimizer = torch.optim.AdamW(trained, lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    engine, _, _, _ = deepspeed.initialize(model=net, model_parameters=trained, optimizer=optimizer,
                                           lr_scheduler=scheduler, config=config)
    return engine


class Training:
    def __init__(self, rank, kind, seed=0):
        self.engine = make_engine(rank, kind, seed)
        self.position = {"samples": 0, "weights": torch.zeros(2)}
        torch.manual_seed(100 + rank)
        random.seed(200 + rank)
        numpy.random.seed(300 + rank)

    def step(self):
        """One step of the optimizer. Returns the losses."""
        losses = []
        for _ in range(self.engine.gradient_accumulation_steps()):
            words = torch.randint(0, WORDS, (BATCH, 5))
            loss = self.engine(words) * (1 + random.random() + numpy.random.rand())
            self.engine.backward(loss)
            self.engine.step()
            losses.append(loss.item())
        self.position["samples"] += BATCH
        self.position["weights"] += losses[-1]
        return losses

    def digest(self):
        """A digest of everything that the next steps depend on. Collective."""
        engine = self.engine
        total = hashlib.sha256(digest_of(engine).encode())
        for tensor in (self.position["weights"], torch.get_rng_state()):
            total.update(tensor.numpy().tobytes())
        scheduler = engine.lr_scheduler and engine.lr_scheduler.state_dict()
        rest = (self.position["samples"], scheduler, engine.get_lr(), engine.global_steps, engine.skipped_steps,
                engine.micro_steps, engine.global_samples, engine.loss_scale() if engine.fp16_enabled() else None,
                random.getstate(), numpy.random.get_state()[1].tobytes())
        total.update(repr(rest).encode())
        return total.hexdigest()


def digest_of(engine):
    """A digest of the model and the optimizer. Collective."""
    total = hashlib.sha256()
    for tensor in [*engine.module.buffers(), *_state_tensors(engine)]:
        total.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def _state_tensors(engine):
    """Complete weights, masters and moments, as DeepSpeed returns them."""
    parameters = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=engine.zero_optimization_partition_weights()):
        weights = [parameter.detach().clone() for parameter in parameters]
    if not engine.zero_optimization():
        base = getattr(engine.optimizer, "optimizer", engine.optimizer)
        masters = [parameter for group in base.param_groups for parameter in group["params"]]
        return weights + masters + [base.state[m][key] for m in masters for key in ("exp_avg", "exp_avg_sq", "step")]
    if not engine.zero_optimization_partition_weights():
        # As in the first step, except that the first step handles groups that have no state yet.
        engine.optimizer._hp_optimizer_states_linked = False
        engine.optimizer._lazy_init_hp_params_optimizer_state()
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    moments = [safe_get_full_optimizer_state(p, key) for p in trained for key in ("exp_avg", "exp_avg_sq")]
    return weights + [safe_get_full_fp32_param(parameter) for parameter in trained] + moments


def held_by(engine):
    """The tensors in which an engine keeps weights, masters and moments."""
    base = getattr(engine.optimizer, "optimizer", engine.optimizer)
    if not engine.zero_optimization_partition_weights():
        return moved.of([engine.module], [base])
    flats = list(engine.optimizer.fp32_partitioned_groups_flat)
    weights = [parameter.ds_tensor for parameter in engine.module.parameters()]
    return [*engine.module.buffers(), *weights, *flats, *(value for flat in flats for value in base.state[flat].values()
                                                         if torch.is_tensor(value))]


def train(rank, world, kind, steps, config=None, own_nodes=False, die_at=None, in_flight=False, storage_at=None,
          written=False):
    """Trains to `steps`, resuming if a version was saved. Returns [step resumed at, bytes by source, losses, digest].
    With `in_flight` it dies during a save, after the previous save has committed; with `written`, when DeepSpeed's own
    files are there."""
    job = Training(rank, kind, seed=0 if config is None or die_at or storage_at else 1)
    if config is None:
        losses = [job.step() for _ in range(steps)]
        return [None, None, losses, job.digest()]
    overrides = {"node": f"node{rank}"} if own_nodes else None
    with tierckpt.deepspeed.attach(job.engine, config=config, overrides=overrides,
                                   client_state=job.position) as checkpoint:
        resumed = checkpoint.load_checkpoint()
        losses = []
        for step in range((resumed or 0) + 1, steps + 1):
            losses.append(job.step())
            checkpoint.save_checkpoint_if_needed()
            if step == storage_at:
                checkpoint.save_checkpoint(to_storage=True)
                checkpoint.wait("drained")
            if written and step == die_at:
                job.engine.checkpoint_engine.wait()
            if step == die_at and in_flight:
                die()
            if step in (die_at, (die_at or 0) - 1):
                checkpoint.wait("committed")
                torch.distributed.barrier()
            if step == die_at:
                die()
        source = checkpoint.restored and {name: getattr(checkpoint.restored, name) for name in
                                          ("bytes_local", "bytes_twin", "bytes_peer", "bytes_storage")}
        return [resumed, source, losses, job.digest()]

