# SPDX-License-Identifier: Apache-2.0
"""A training with FSDP2 on CPUs that calls torchtitan's checkpoint manager as torchtitan's training program did when it
had a job_config: the manager's arguments, keys and methods are those of the document."""

import hashlib
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as torch_dcp
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import tierckpt
from harness import die
from observers import Heard, settle
from tierckpt.adapters.torchtitan_lines import _states
from tierckpt.torchtitan import CheckpointManager, TrainState  # instead of torchtitan.checkpoint

WIDTH = 16
KEYS = {"enable_checkpoint": True, "folder": "checkpoint", "interval_type": "steps", "interval": 1000,
        "model_weights_only": False, "export_dtype": "float32", "async_mode": "disabled", "keep_latest_k": 0,
        "create_seed_checkpoint": False, "load_step": -1}


def make_job_config(dump, **keys):
    """Sections are classes whose attributes are the keys, as torchtitan's ConfigManager made them."""
    sections = {"job": {"dump_folder": dump}, "checkpoint": {**KEYS, **keys}}
    return type("JobConfig", (), {name: type(name.title(), (), section)() for name, section in sections.items()})()


class Block(nn.Module):
    """freqs_cis is a persistent buffer, as in the document's Llama."""

    def __init__(self, buffer=False):
        super().__init__()
        self.w1, self.w2 = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)
        if buffer:
            self.register_buffer("freqs_cis", torch.ones(4, dtype=torch.float64))

    def forward(self, x):
        return x + self.w2(torch.relu(self.w1(x)))


class Data:
    """A data loader whose batches depend on its position and on the rank's random numbers."""

    def __init__(self):
        self.at = 0

    def next(self):
        self.at += 1
        fixed = torch.Generator().manual_seed(self.at)
        return torch.rand(4, WIDTH, generator=fixed) + torch.rand(4, WIDTH)

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, value):
        self.at = value["at"]


class Training:
    def __init__(self, rank, world, dump, parts=1, seed=0, config=None, **keys):
        torch.manual_seed(seed)
        self.parts = [nn.Sequential() for _ in range(parts)]
        for number, part in enumerate(self.parts):
            part.add_module(f"block{number}", Block(buffer=number == 0))
            if number == 0:
                part.register_buffer("freqs_cis", torch.arange(4.0))
        if world > 1:
            mesh = init_device_mesh("cpu", (world,))
            for part in self.parts:
                fully_shard(part, mesh=mesh).set_force_sum_reduction_for_comms(True)  # gloo has no scaled sum
        self.optimizers = [torch.optim.AdamW(part.parameters(), lr=0.05) for part in self.parts]
        self.schedulers = [torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
                           for optimizer in self.optimizers]
        self.data, self.state = Data(), TrainState()
        torch.manual_seed(1 + rank)
        self.checkpoint = CheckpointManager(
            dataloader=self.data,
            model_parts=self.parts,
            optimizers=self.optimizers,
            lr_schedulers=self.schedulers,
            states={"train_state": self.state},
            job_config=make_job_config(dump, **keys),
            config=config,
        )

    def step(self):
        self.state.step += 1
        x = self.data.next()
        for part in self.parts:
            x = part(x)
        loss = x.square().mean()
        loss.backward()
        self.checkpoint.maybe_wait_for_staging()
        for optimizer, scheduler in zip(self.optimizers, self.schedulers, strict=True):
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        self.state.global_avg_losses.append(_mean_of_ranks(loss.detach()))
        self.state.log_steps.append(self.state.step)

    def tensors(self):
        for part, optimizer in zip(self.parts, self.optimizers, strict=True):
            yield from part.state_dict().values()
            for param in part.parameters():
                yield from (value for _, value in sorted(optimizer.state[param].items()))

    def digest(self):
        """Returns a digest of everything that affects this rank's next steps."""
        total = hashlib.sha256()
        for tensor in (*self.tensors(), torch.get_rng_state()):
            total.update(_local(tensor).detach().contiguous().numpy().tobytes())
        rest = (self.data.at, self.state, [scheduler.state_dict() for scheduler in self.schedulers])
        total.update(repr(rest).encode())
        return total.hexdigest()

    def whole(self):
        """Of model and optimizer, the same for any number of ranks; and of the model alone."""
        return [_digest_of(self.tensors()), _digest_of(value for part in self.parts
                                                       for value in part.state_dict().values())]


def _mean_of_ranks(loss):
    if not dist.is_initialized():
        return loss.item()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def _local(tensor):
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def _digest_of(tensors):
    total = hashlib.sha256()
    for tensor in tensors:
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        total.update(whole.detach().contiguous().numpy().tobytes())
    return total.hexdigest()


def train(rank, world, dump, steps=6, die_at=None, load_step=-1, config=None, **keys):
    """Returns {"first": steps done before, ...}."""
    heard = Heard()
    training = Training(rank, world, dump, config=config, **keys)
    checkpoint = training.checkpoint
    loaded = checkpoint.load(step=load_step)
    first, whole = training.state.step, training.whole() if loaded else None
    checkpoint.reset()
    while training.state.step < steps:
        training.step()
        checkpoint.save(training.state.step, force=(training.state.step == steps))
        if config is not None and training.state.step != steps:
            settle(checkpoint._job.checkpoint)  # the steps are so short that saves would be skipped
        if training.state.step == die_at:
            if world > 1:
                dist.barrier()
            die()
    return {"first": first, "loaded": whole, "digest": training.digest(), "whole": training.whole(),
            "losses": training.state.global_avg_losses, "log": heard.lines}


def train_until_saved(rank, world, dump, config, **keys):
    """With an interval in seconds: goes on until a version is on storage, and is killed then."""
    training = Training(rank, world, dump, config=config, **keys)
    training.checkpoint.load()
    training.checkpoint.reset()
    while not any(Path(dump).glob("tierckpt/*/v*/manifest.json")):
        training.step()
        training.checkpoint.save(training.state.step)
        settle(training.checkpoint._job.checkpoint)
        time.sleep(0.05)
    die()


def seed(rank, world, dump, **keys):
    """A seed checkpoint. Returns the digest of the model."""
    training = Training(rank, world, dump, seed=7, **keys)
    training.checkpoint.save(curr_step=0, force=True)
    return training.whole()[1]


def stock(rank, world, dump, steps, config):
    """A checkpoint that torch writes, as torchtitan's own manager does, and where the training stood then."""
    training = Training(rank, world, dump, config=config)
    for _ in range(steps):
        training.step()
    torch_dcp.save(training.checkpoint.states, checkpoint_id=os.path.join(dump, "checkpoint", f"step-{steps}"))
    return {"whole": training.whole(), "losses": training.state.global_avg_losses}


def loaded_by_torch(rank, world, dump, step):
    """What torch alone loads of this step, as torchtitan's own manager does."""
    training = Training(rank, world, os.path.join(dump, "unused"), enable_checkpoint=False)
    states = {"train_state": training.state, **_states(training.data, training.parts, training.optimizers,
                                                       training.schedulers)}
    torch_dcp.load(states, checkpoint_id=os.path.join(dump, "checkpoint", f"step-{step}"))
    return {"whole": training.whole(), "losses": training.state.global_avg_losses, "at": training.data.at}


def contents(rank, world, dump, step):
    """Keys and dtypes of a checkpoint that torch has written."""
    metadata = torch_dcp.FileSystemReader(os.path.join(dump, "checkpoint", f"step-{step}")).read_metadata()
    return {key: str(value.properties.dtype) for key, value in metadata.state_dict_metadata.items()}


def wrong(rank, world, dump, config, changes):
    """The errors of constructors with these keys."""
    texts = []
    for change in changes:
        keys = {"config": {**config, **change.pop("config", {})}, **change}
        try:
            Training(rank, world, dump, **keys)
        except tierckpt.Error as error:
            texts.append(str(error))
    return texts


def refused(rank, world, dump, step, config):
    """The error of a load of this step."""
    training = Training(rank, world, dump, config=config)
    try:
        training.checkpoint.load(step)
    except tierckpt.Error as error:
        return str(error)
