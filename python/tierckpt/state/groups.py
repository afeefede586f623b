# SPDX-License-Identifier: Apache-2.0
"""Which ranks hold the same bytes. It is taken from process groups and device meshes, never guessed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.placement_types import Placement


@dataclass(frozen=True)
class Group:
    """Some ranks of the world, sorted."""

    ranks: tuple[int, ...]

    @property
    def name(self) -> str | None:
        """What a record has; None if no other rank holds the same."""
        return "ranks:" + ",".join(map(str, self.ranks)) if len(self.ranks) > 1 else None


PRIVATE = "private"
"""For init(replicate_group=): plain tensors belong to their rank alone, and no two ranks use the same name."""


def of_ranks(ranks: Iterable[int]) -> Group:
    return Group(tuple(sorted(int(rank) for rank in ranks)))


def of_process_group(group: ProcessGroup) -> Group:
    return of_ranks(dist.get_process_group_ranks(group))


def of_mesh(mesh: DeviceMesh) -> Group:
    return of_ranks(mesh.mesh.flatten().tolist())


def of_replicas(mesh: DeviceMesh, placements: Sequence[Placement]) -> Group:
    """The ranks along the mesh dimensions that do not shard, at this rank's coordinate in the others."""
    here = mesh.get_coordinate() or ()
    index = tuple(slice(None) if placement.is_replicate() else at
                  for placement, at in zip(placements, here, strict=True))
    return of_ranks(mesh.mesh[index].flatten().tolist())


def within(name: str | None, members: Sequence[int]) -> str | None:
    """The name of a group of ranks as the world of these ranks knows it: those of its ranks that are in it, by their
    numbers in it."""
    if name is None:
        return None
    ranks = map(int, name.removeprefix("ranks:").split(","))
    return of_ranks(members.index(rank) for rank in ranks if rank in members).name
