# SPDX-License-Identifier: Apache-2.0
"""Small models, wrapped as jobs wrap them, for tests with several ranks."""

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

WIDTH = 6


def plain(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 5), nn.BatchNorm1d(5), nn.Dropout(0.2), nn.Linear(5, 3))


def ddp(seed=0):
    return DistributedDataParallel(plain(seed))


def sharded(mesh_shape, seed=0):
    """5 rows do not divide evenly among 2 or 4 ranks; 3 rows leave the last of 4 with nothing."""
    names = ("replicate", "shard")[-len(mesh_shape):]
    mesh = init_device_mesh("cpu", tuple(mesh_shape), mesh_dim_names=names)
    model = plain(seed)
    fully_shard(model, mesh=mesh)
    return model


def tensor_parallel(seed=0):
    """Rows sharded over both dimensions of a 2 x 2 mesh."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(WIDTH, 8), nn.Dropout(0.2), nn.Linear(8, 4))
    parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["dp"])
    return model


def make(kind, seed=0):
    """(model, optimizer) of a kind: plain, ddp, zero, fsdp, hsdp, tp."""
    if kind == "tp":
        model = tensor_parallel(seed)
    elif kind in ("plain", "ddp", "zero"):
        model = plain(seed) if kind == "plain" else ddp(seed)
    else:
        world = torch.distributed.get_world_size()
        model = sharded((world,) if kind == "fsdp" else (2, world // 2), seed)
    if kind == "zero":
        return model, ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=0.1)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


class Secretive(torch.optim.Optimizer):
    """An optimizer whose future state cannot be determined."""

    def __init__(self, params):
        super().__init__(params, {})
        self.tool = nn.Linear(1, 1)

    @torch.no_grad()
    def step(self):
        for param in self.param_groups[0]["params"]:
            self.state[param].setdefault("sum", torch.zeros_like(param)).add_(param.grad)
            param.sub_(self.state[param]["sum"])
