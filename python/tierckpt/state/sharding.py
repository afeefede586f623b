# SPDX-License-Identifier: Apache-2.0
"""The place of this rank's piece of a tensor in the whole tensor, and which ranks hold the same piece."""


import re
from collections.abc import Callable
from dataclasses import replace

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
from torch.distributed.tensor.placement_types import _StridedShard

from .. import errors
from . import groups
from .records import Record, local_of, whole

_OWN = re.compile(r"rank(\d+)/(.*)", re.DOTALL)


def rank_key(rank: int, key: str) -> str:
    """The key of something that belongs to this rank, if other ranks have something of the same name."""
    return f"rank{rank}/{key}"


def split_rank(key: str) -> tuple[int | None, str]:
    """The reverse of rank_key: (rank, key), or (None, key) for a plain key."""
    match = _OWN.fullmatch(key)
    return (None, key) if match is None else (int(match[1]), match[2])


class Placer:
    """Makes records. `plain` is the group of ranks that hold the same plain tensors, None if that is not known."""

    def __init__(self, rank: int, plain: groups.Group | None) -> None:
        self.rank = rank
        self.plain = plain

    def with_plain(self, plain: groups.Group) -> "Placer":
        return Placer(self.rank, plain)

    def of(self, _name: str) -> "Placer":
        """The placer for the state of the parameter of this name. In some frameworks it differs between parameters."""
        return self

    def record(self, key: str, find: Callable[[], torch.Tensor], eager: bool = False,
               look: Callable[[], None] | None = None) -> Record | None:
        """The record of the tensor, perhaps a DTensor, that `find` returns. None if this rank holds nothing of it."""
        tensor = find()
        if isinstance(tensor, DTensor):
            return self._sharded(key, tensor, find, eager, look)
        if self.plain is None:
            raise errors.UnsupportedError(
                f"{key} is a plain tensor on each of several ranks, and it is not known whether they hold the same "
                "values: "
                "wrap the model in DistributedDataParallel or fully_shard, or pass init(replicate_group=<process "
                "group of its copies>) or init(replicate_group=tierckpt.PRIVATE)")
        return whole(key, find, self.plain.name, eager, look)

    def _sharded(self, key: str, tensor: DTensor, find: Callable[[], torch.Tensor], eager: bool,
                 look: Callable[[], None] | None) -> Record | None:
        mesh, placements, shape = tensor.device_mesh, tensor.placements, tuple(tensor.shape)
        if mesh.get_coordinate() is None:
            return None
        _check_placements(key, tensor)
        local_shape, offset = compute_local_shape_and_global_offset(shape, mesh, placements)
        local = local_of(tensor)
        if tuple(local.shape) != tuple(local_shape):
            raise errors.UnsupportedError(
                f"{key}: this rank holds {tuple(local.shape)}, its placements {placements} say "
                f"{tuple(local_shape)}")
        if local.numel() == 0 and tensor.numel() > 0:
            return None
        group = groups.of_replicas(mesh, placements)
        return Record(key, find, shape, tuple(offset), group.name, eager, look)

    def step_like(self, key: str, find: Callable[[], torch.Tensor], param: DTensor,
                  look: Callable[[], None] | None = None) -> Record:
        """The record of a plain scalar that counts the steps of a sharded parameter: all ranks of its mesh have the
        same."""
        return whole(key, find, groups.of_mesh(param.device_mesh).name, eager=True, look=look)

    def private(self, key: str, find: Callable[[], torch.Tensor], look: Callable[[], None] | None = None,
                reshard: str = "refuse") -> Record:
        """The record of a tensor that other ranks have under the same name with other contents."""
        return replace(whole(rank_key(self.rank, key), find, None, eager=True, look=look), reshard=reshard)


def _check_placements(key: str, tensor: DTensor) -> None:
    for placement in tensor.placements:
        if not (placement.is_shard() or placement.is_replicate() or isinstance(placement, _StridedShard)):
            raise errors.UnsupportedError(f"{key} has placements {tensor.placements}: only Shard and Replicate can be "
                                          "saved")
    for dim in {placement.dim for placement in tensor.placements if isinstance(placement, _StridedShard)}:
        rows = _rows(tensor, dim)
        if rows.numel() > 0 and int(rows[-1] - rows[0]) != rows.numel() - 1:
            raise errors.UnsupportedError(
                f"{key} of shape {tuple(tensor.shape)} has placements {tensor.placements}: this "
                "rank holds several pieces of the whole, and only a single one can be saved")


def _rows(tensor: DTensor, dim: int) -> torch.Tensor:
    """The indices along `dim` that this rank holds, in their order. fully_shard makes strided shards of tensors that
    tensor parallelism has sharded along the same dimension; usually their rows are one piece, but not always."""
    rows = torch.arange(tensor.shape[dim])
    mesh = tensor.device_mesh
    for size, at, placement in zip(mesh.shape, mesh.get_coordinate() or (), tensor.placements, strict=True):
        if getattr(placement, "dim", None) != dim:
            continue
        parts = rows.chunk(int(placement.split_factor)) if isinstance(placement, _StridedShard) else (rows,)
        shares = [part.chunk(int(size)) for part in parts]
        rows = torch.cat([rows[:0]] + [share[at] for share in shares if at < len(share)])
    return rows
