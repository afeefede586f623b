# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers of DTensors, saved and loaded with veScale's lines on CPUs."""

import hashlib
import os

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import tierckpt
import tierckpt.vescale  # instead of vescale.checkpoint
from harness import die
from observers import Heard
from tierckpt.adapters import dcp_functions, dcp_sources


def _layout(world):
    """Four ranks are two replicas of two shards each; two ranks are two shards in the other dimension."""
    if world == 4:
        return init_device_mesh("cpu", (2, 2), mesh_dim_names=("DP", "TP")), [Replicate(), Shard(0)]
    return init_device_mesh("cpu", (world,), mesh_dim_names=("TP",)), [Shard(-1)]


class Training:
    def __init__(self, world, seed=0):
        torch.manual_seed(seed)
        self._layout = _layout(world) if world > 1 else None
        self.model = nn.Sequential(nn.Linear(6, 9), nn.Linear(9, 5))  # 9 and 5 are no multiples of 2
        for layer in self.model:
            for name, param in list(layer.named_parameters()):
                setattr(layer, name, nn.Parameter(self._distributed(param.data)))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)

    def _distributed(self, tensor):
        return tensor if self._layout is None else distribute_tensor(tensor, *self._layout)

    def step(self, number):
        generator = torch.Generator().manual_seed(number)
        for param in self.model.parameters():
            param.grad = self._distributed(torch.rand(param.shape, generator=generator))
        self.optimizer.step()

    @property
    def checkpoint_state(self):
        return {"model": self.model, "optimizer": self.optimizer}

    def digest(self):
        """Of all tensors as a whole: the same for any sharding."""
        total = hashlib.sha256()
        for param in self.model.parameters():
            state = self.optimizer.state[param]
            for tensor in (param, *(state[key] for key in sorted(state))):
                whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
                total.update(whole.detach().contiguous().numpy().tobytes())
        return total.hexdigest()


def save(rank, world, path, async_checkpoint=False):
    """Returns the digest of what is saved, and files."""
    training = Training(world)
    for number in (1, 2):
        training.step(number)
    digest, checkpoint_state = training.digest(), training.checkpoint_state
    future = tierckpt.vescale.save(path, checkpoint_state, async_checkpoint=async_checkpoint)
    if future is not None:
        with torch.no_grad():  # training goes on
            for param in training.model.parameters():
                param.add_(1)
        future.result()
    return digest, sorted(os.listdir(path))


def load(rank, world, path, broadcast_checkpoint=False):
    """Returns the digest, how many tensors this rank has read from the directory, and whether memory was loaded."""
    training, reads = Training(world, seed=99), []
    read = dcp_sources._read
    dcp_sources._read = lambda version, key, *place: (reads.append(key), read(version, key, *place))
    checkpoint_state = training.checkpoint_state
    tierckpt.vescale.load(path, checkpoint_state, broadcast_checkpoint=broadcast_checkpoint)
    series, = dcp_functions.program._series.values()
    return training.digest(), len(reads), series.tiers.attached and series.tiers.restored.bytes_local > 0


def train(rank, world, path, steps, first=1, die_at=None):
    """Saves each step; begins with a load unless it is the first start."""
    training = Training(world, seed=first)
    if first > 1:
        tierckpt.vescale.load(path, training.checkpoint_state)
    for number in range(first, steps + 1):
        training.step(number)
        future = tierckpt.vescale.save(path, training.checkpoint_state, async_checkpoint=True)
        if number == die_at:
            future.result()
            dist.barrier()
            die()
    return training.digest()


class Foreign(torch.Tensor):
    """Stands for a DTensor of another library."""

    device_mesh = None


def wrong(rank, world, path):
    training, texts = Training(world), []
    model, optimizer = training.model, training.optimizer
    foreign = nn.Linear(2, 2)
    foreign.register_buffer("table", torch.ones(2).as_subclass(Foreign))
    for state in ({"model": model, "step": 3}, {"optimizer": optimizer}, {"model": model, "optimizer": object()},
                  {"model": foreign}):
        try:
            tierckpt.vescale.save(path, state)
        except tierckpt.Error as error:
            texts.append(str(error))
    try:
        tierckpt.vescale.load(path, {"model": model})
    except tierckpt.NotFoundError as error:
        texts.append(str(error))
    return texts


def failing(rank, world, path):
    """The log of an asynchronous save whose directory cannot be made."""
    heard, training = Heard(), Training(world)
    series = dcp_functions.Series
    series.place = lambda self, name, step: (_ for _ in ()).throw(tierckpt.IoError("the disk is gone"))
    future = tierckpt.vescale.save(path, training.checkpoint_state, async_checkpoint=True)
    fault = future.exception()
    return str(fault), [line for line in heard.lines if "was not saved" in line]
