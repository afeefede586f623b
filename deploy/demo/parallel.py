# SPDX-License-Identifier: Apache-2.0
"""The two ways of the demonstration to spread a model over the ranks: (model to call, optimizer)."""

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

LEARNING_RATE = 1e-3
WEIGHT_DECAY = 0.1


def ddp_zero(model):
    """Parameters on every rank, optimizer state in one shard per rank.

    DDP reorders its gradient buckets after the first backward pass, and with four ranks the order of a sum changes
    its last bits. find_unused_parameters keeps the first order, so that a restarted process computes the same bits.
    """
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), optimizer_class=torch.optim.AdamW, lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY
    )
    return parallel, optimizer


def hsdp(model, world_size):
    """Parameters and optimizer state sharded inside a node and repeated on the other one (FSDP2 on a 2-D mesh)."""
    mesh = init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("replicate", "shard"))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    return model, optimizer
