# SPDX-License-Identifier: Apache-2.0
"""The process group for collectives in the background."""

import os

import torch.distributed as dist

import harness
from tierckpt.adapters.own_group import own_group

WORLD = 8


def sockets():
    return sum(os.readlink(entry.path).startswith("socket:") for entry in os.scandir("/proc/self/fd")
               if os.path.lexists(entry.path))


def makes_and_uses(rank, world):
    before = sockets()
    group = own_group()
    made = sockets()
    gathered = [None] * world if rank == 0 else None
    dist.gather_object(rank, gathered, dst=0, group=group)
    scattered = [None]
    dist.scatter_object_list(scattered, list(range(world)) if rank == 0 else None, src=0, group=group)
    return [made - before, sockets() - before, gathered, scattered[0], os.environ.get("TORCH_GLOO_LAZY_INIT")]


def test_connections_are_made_for_what_is_exchanged(tmp_path):
    """A mesh of all ranks does not scale. Rank 0 gathers from all; the others exchange with a few."""
    found = harness.run(tmp_path, "test_own_group:makes_and_uses", world=WORLD)
    assert found[0][2] == list(range(WORLD))
    assert [rank[3] for rank in found] == list(range(WORLD))
    assert all(rank[4] is None for rank in found), "the variable of torch is as it was"
    assert all(rank[0] <= 2 for rank in found), found
    mesh = WORLD - 1  # connections of each rank
    assert sum(rank[1] for rank in found[1:]) < mesh * (WORLD - 1), found
