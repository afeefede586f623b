# SPDX-License-Identifier: Apache-2.0
"""The programs of the tutorial "Getting started with DCP" on CPUs: its calls, after one other import.

harness.run has called init_process_group. The optimizer of the program that loads, which the tutorial uses and does not
create, is created. FullyShardedDataParallel takes a CPU only by device_id."""

import functools
import hashlib
import os

import torch
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

import tierckpt.dcp as dcp  # instead of torch.distributed.checkpoint
from tierckpt.adapters import dcp_functions

FSDP = functools.partial(FullyShardedDataParallel, device_id=torch.device("cpu"))
CHECKPOINT_DIR = "checkpoint"


class ToyModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net1 = nn.Linear(16, 16)
        self.relu = nn.ReLU()
        self.net2 = nn.Linear(16, 8)

    def forward(self, x):
        return self.net2(self.relu(self.net1(x)))


def _trained(seed):
    torch.manual_seed(seed)
    model = FSDP(ToyModel())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    optimizer.zero_grad()
    model(torch.rand(8, 16)).sum().backward()
    optimizer.step()
    return model, optimizer


def _whole(model, optimizer):
    """Digests of model and optimizer, and of the model alone."""
    state = FullyShardedDataParallel.full_optim_state_dict(model, optimizer, rank0_only=False)["state"]
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        weights = _digest_of(model.state_dict())
    return weights + "".join(_digest_of(state[key]) for key in sorted(state)), weights


def _digest_of(state):
    total = hashlib.sha256()
    for key in sorted(state):
        total.update(state[key].detach().contiguous().numpy().tobytes())
    return total.hexdigest()


def save(rank, world, directory, seed=0):
    os.chdir(directory)
    model, optimizer = _trained(seed)
    model_state_dict, optimizer_state_dict = get_state_dict(model, optimizer)
    state_dict = {
        "model": model_state_dict,
        "optimizer": optimizer_state_dict
    }
    dcp.save(state_dict, checkpoint_id=CHECKPOINT_DIR)
    files = sorted(os.listdir(CHECKPOINT_DIR))
    return files, *_whole(model, optimizer)


def load(rank, world, directory):
    os.chdir(directory)
    model, optimizer = _trained(99)
    model_state_dict, optimizer_state_dict = get_state_dict(model, optimizer)
    state_dict = {
        "model": model_state_dict,
        "optimizer": optimizer_state_dict
    }
    dcp.load(
        state_dict=state_dict,
        checkpoint_id=CHECKPOINT_DIR,
    )
    set_state_dict(
        model,
        optimizer,
        model_state_dict=model_state_dict,
        optim_state_dict=optimizer_state_dict
    )
    return *_whole(model, optimizer), _from_memory()


def _from_memory():
    """Whether the last load was one from the memory of this node."""
    series, = dcp_functions.program._series.values()
    return series.tiers.attached and series.tiers.restored.bytes_local > 0


def load_alone(rank, world, directory):
    os.chdir(directory)
    model = ToyModel()
    state_dict = {
        "model": model.state_dict(),
    }
    dcp.load(
        state_dict=state_dict,
        checkpoint_id=CHECKPOINT_DIR,
    )
    model.load_state_dict(state_dict["model"])
    return _digest_of(model.state_dict())
