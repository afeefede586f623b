# SPDX-License-Identifier: Apache-2.0
"""torchtitan's own Trainer with FSDP2 on CPUs, a tiny Llama and random data."""

import hashlib
import os
import random
import sys
from dataclasses import dataclass

import moved
import torch
import torchtitan_cpu
from counted import count
from harness import die
from observers import Heard, draws_as_its_own, settle
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.tensor import DTensor
from torchtitan.components.checkpointer import BaseCheckpointManager, CheckpointManager
from torchtitan.components.dataloader import BaseDataLoader
from torchtitan.components.loss import CrossEntropyLoss
from torchtitan.components.metrics import MetricsProcessor
from torchtitan.components.optimizer import LRSchedulersContainer, default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.config import ConfigManager, ParallelismConfig, TrainingConfig
from torchtitan.models.llama3 import model_registry
from torchtitan.trainer import Trainer

import tierckpt
from tierckpt.torchtitan import TierckptManager

torchtitan_cpu.use_plain_attention()
torchtitan_cpu.wait_for_nobody()

VOCABULARY, LENGTH = 2048, 16


class Loader(BaseDataLoader):
    """Each rank's data depend on its position and on its random numbers, so both must be restored."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        pass

    def __init__(self, config, *, dp_world_size, dp_rank, tokenizer, seq_len, local_batch_size,
                 snapshot_every_n_steps=None):
        self._rank, self._batch, self._length, self._at = dp_rank, local_batch_size, seq_len, 0
        torch.manual_seed(1 + dp_rank)
        random.seed(1 + dp_rank)

    def __iter__(self):
        while True:
            self._at += 1
            fixed = torch.Generator().manual_seed(100 * self._at + self._rank)
            half = torch.randint(0, VOCABULARY, (self._batch, self._length // 2), generator=fixed)
            other = torch.randint(0, VOCABULARY - random.randint(0, 9), (self._batch, self._length // 2 + 1))
            tokens = torch.cat([half, other], dim=1)
            yield {"input": tokens[:, :-1].contiguous()}, tokens[:, 1:].contiguous()

    def state_dict(self):
        return {"at": torch.tensor(self._at)}

    def load_state_dict(self, value):
        self._at = int(value["at"])


class NoTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, tokenizer_path=None):
        super().__init__()

    def encode(self, *_args, **_named):
        return []

    def decode(self, *_args, **_named):
        return ""

    def get_vocab_size(self):
        return VOCABULARY


def make(rank, world, dump, steps, checkpoint, parallel=None, layers=1):
    """Returns a trainer that is ready to train."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                      MASTER_PORT="0")
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/store", rank=rank,
                                             world_size=world)
    spec = model_registry("debugmodel", attn_backend="sdpa")
    spec.model.layers = spec.model.layers[:layers]
    trainer = Trainer.Config(
        model_spec=spec, dump_folder=dump, tokenizer=NoTokenizer.Config(), dataloader=Loader.Config(),
        optimizer=default_adamw(lr=8e-4), loss=CrossEntropyLoss.Config(global_vocab_size=VOCABULARY),
        lr_scheduler=LRSchedulersContainer.Config(warmup_steps=2),
        training=TrainingConfig(local_batch_size=2, seq_len=LENGTH, steps=steps, disable_cuda_graphs=True,
                                mixed_precision_param="float32"),
        metrics=MetricsProcessor.Config(log_freq=1),
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor", **(parallel or {})),
        checkpoint=checkpoint).build()
    torchtitan_cpu.sum_in_fsdp(trainer.model_parts)
    for part in trainer.model_parts:
        for layer in part.layers.values():
            count(layer.ffn_norm)
    if trainer.parallel_dims.pp_enabled:
        torchtitan_cpu.take_microbatches(trainer.pp_schedule)
        infer_without_counting(trainer.pp_schedule, trainer.model_parts)
    return trainer


def infer_without_counting(schedule, parts):
    """PyTorch 2.13 infers the shapes between stages with an extra pass in the first step of every process, which a
    resumed training would count twice."""
    name = "_initialize_stages" if hasattr(schedule, "_initialize_stages") else "_initialize_stage"
    infer = getattr(schedule, name)

    def inferred(*inputs, **named):
        counted = [(module, module.passes) for part in parts for module in part.modules() if hasattr(module, "passes")]
        infer(*inputs, **named)
        for module, passes in counted:
            module.passes = passes

    setattr(schedule, name, inferred)


def local(tensor):
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def tensors_of(trainer):
    tensors = []
    for part in trainer.model_parts:
        tensors += list(part.parameters()) + list(part.buffers())
    for optimizer in trainer.optimizers:
        for state in optimizer.state.values():
            tensors += [state[key] for key in sorted(state)]
    return tensors


def digest(trainer):
    """A digest of everything that this rank's next steps depend on."""
    total = hashlib.sha256()
    for tensor in tensors_of(trainer) + [torch.get_rng_state(), torch.tensor(trainer.dataloader._at)]:
        total.update(local(tensor).detach().contiguous().numpy().tobytes())
    groups = [{key: value for key, value in group.items() if key != "params"}
              for optimizer in trainer.optimizers for group in optimizer.param_groups]
    rest = (trainer.state_dict(), trainer.lr_schedulers.state_dict(), groups, random.getstate())
    total.update(repr(rest).encode())
    return total.hexdigest()


def whole_digests(trainer):
    """Digests by name of each complete parameter and its moments: the same for every number of ranks. In a pipeline,
    each rank has those of its own stages."""
    names = {id(param): name for part in trainer.model_parts for name, param in part.named_parameters()}
    digests = {}
    for optimizer in trainer.optimizers:
        for param, state in optimizer.state.items():
            total = hashlib.sha256()
            for tensor in [param] + [state[key] for key in sorted(state)]:
                full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
                total.update(full.detach().contiguous().numpy().tobytes())
            digests[names[id(param)]] = total.hexdigest()
    return digests


def others_of(trainer):
    """What is the same on all ranks beside model and optimizer."""
    rates = [group["lr"] for optimizer in trainer.optimizers for group in optimizer.param_groups]
    return [trainer.step, trainer.dataloader._at, trainer.lr_schedulers.state_dict()["last_epoch"], rates[:1]]


class Watch:
    """Watches a training: records losses and what was restored, and kills the process with SIGKILL right after the save
    of step `die_at`, once the save of step `sure` has reached `stage`."""

    def __init__(self, trainer, die_at, sure, stage):
        self._trainer, self._die_at, self._sure, self._stage = trainer, die_at, sure or die_at, stage
        self.losses, self.resumed, self.source, self.loaded, self.addresses = [], None, None, None, set()
        self.published = None  # the configuration of a version with whose generators to compare those after the load
        log = trainer.metrics_processor.log
        trainer.metrics_processor.log = lambda step, loss, *rest, **named: (
            self.losses.append([step, loss]), log(step, loss, *rest, **named))
        self._save, self._load = trainer.checkpointer.save, trainer.checkpointer.load
        trainer.checkpointer.save, trainer.checkpointer.load = self.save, self.load

    def load(self, step=-1):
        self._load(step)
        self.resumed = self._trainer.step
        self.loaded, self.others = whole_digests(self._trainer), others_of(self._trainer)
        self.own = None if self.published is None else draws_as_its_own(torch.distributed.get_rank(), self.published)
        restored = getattr(getattr(self._trainer.checkpointer, "checkpoint", None), "restored", None)
        self.source = restored and {name: getattr(restored, name) for name in (
            "bytes_local", "bytes_twin", "bytes_peer", "bytes_storage")}

    def save(self, step, last_step=False):
        self._save(step, last_step=last_step)
        self.addresses.add(tuple(local(tensor).data_ptr() for tensor in tensors_of(self._trainer)))
        if self._die_at is not None and step < self._sure:
            settle(self._trainer.checkpointer.checkpoint)
        if step == self._sure and self._die_at is not None:
            self._trainer.checkpointer.checkpoint.wait(self._stage, self._sure)
        if step == self._die_at:
            torch.distributed.barrier()
            die()


def settings_of(rank, settings, own_nodes, keys):
    own = {"node": f"node{rank}"} if own_nodes else {}
    return {"enable": True, "save_mem_interval": 1, "interval": 1000, "initial_load_model_only": False,
            "last_save_model_only": False, "settings": {**settings, **own}, **keys}


def train(rank, world, dump, steps, settings=None, die_at=None, sure=None, stage="committed", own_nodes=False,
          stock=False, parallel=None, layers=1, on_device=None, **keys):
    """Returns the result. Without settings: without checkpoints. stock: with torchtitan's own manager. on_device: how
    tensors are moved while a version is read (moved.WhileRead)."""
    if stock:
        checkpoint = CheckpointManager.Config(enable=True, last_save_model_only=False, **keys)
    elif settings is None:
        checkpoint = CheckpointManager.Config(enable=False)
    else:
        checkpoint = TierckptManager.Config(**settings_of(rank, settings, own_nodes, keys))
    heard = Heard()
    trainer = make(rank, world, dump, steps, checkpoint, parallel, layers)
    watch = Watch(trainer, die_at, sure, stage)
    device = on_device and moved.WhileRead(lambda: moved.of(trainer.model_parts, trainer.optimizers), **on_device)
    if on_device:
        watch.published = {**settings, "save_dir": os.path.join(dump, "checkpoint")}
    trainer.train()
    result = {"digest": digest(trainer), "losses": watch.losses, "resumed": watch.resumed, "source": watch.source,
              "loaded": watch.loaded, "whole": whole_digests(trainer), "log": heard.lines,
              "stable": len(watch.addresses) == 1, "device": device and device.report(),
              "others": others_of(trainer), "others_loaded": watch.others, "own": watch.own}
    trainer.close()
    return result


def excluded(rank, world, dump, steps, settings, keys):
    """Returns [the rest was loaded, the excluded part is unchanged]."""
    trainer = make(rank, world, dump, steps, TierckptManager.Config(**settings_of(
        rank, settings, False, {"exclude_from_loading": keys})))
    trainer.checkpointer.load()
    zero = all(not local(state[key]).any() for optimizer in trainer.optimizers
               for state in optimizer.state.values() for key in ("exp_avg", "exp_avg_sq", "step"))
    result = [trainer.step, trainer.dataloader._at, zero]
    trainer.close()
    return result


def unknown_version(rank, world, dump, steps, settings):
    """Trains with a torchtitan whose manager saves differently from the known one."""
    BaseCheckpointManager._save = lambda self, something_else: None
    return train(rank, world, dump, steps, settings)


def wrong_use(rank, world, dump, settings):
    """Returns the errors by kind of misuse."""
    texts = []
    for keys in ({"settings": {**settings, "save_mem_interval": 3}}, {"exclude_from_loading": ["nothing"]},
                 {"load_step": 9}):
        try:
            make(rank, world, dump, 1, TierckptManager.Config(**settings_of(rank, settings, False, keys))).train()
        except (tierckpt.Error, ValueError, FileNotFoundError) as error:
            texts.append(f"{type(error).__name__}: {error}")
    return texts


def dtypes(rank, world, path):
    """Returns the dtypes in a checkpoint of torchtitan's own manager."""
    metadata = FileSystemReader(path).read_metadata().state_dict_metadata
    kinds = {str(value.properties.dtype) for key, value in metadata.items() if not key.endswith("_extra_state")}
    return [sorted(kinds), "lr_scheduler.last_epoch" in metadata]


def example(rank, world, path, runtime_dir, dump, steps):
    """Runs the example's configuration with the checkpoint manager that torchtitan's command line creates."""
    os.environ["TIERCKPT_RUNTIME_DIR"] = runtime_dir
    sys.path.insert(0, path)
    config = ConfigManager().parse_args(["--module", "torchtitan_config", "--config", "llama3_debugmodel_tierckpt",
                                         "--checkpoint.save_mem_interval", "1", "--checkpoint.no-last_save_model_only"])
    trainer = make(rank, world, dump, steps, config.checkpoint)
    watch = Watch(trainer, None, None, None)
    trainer.train()
    trainer.close()
    return watch.resumed
