# SPDX-License-Identifier: Apache-2.0
"""`storage_format` dcp for torchtitan: published versions are what its own manager would have saved.

What that is, its own state dict says. Most tensors of it are found among the records by their memory. Others are copies
that the state dict has made, such as the parts of a fused weight: they are saved in addition, and never loaded."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from ..runtime.world import World
from ..state import groups
from ..state.contents import Contents
from ..state.dcp_files import DcpFiles, Piece, piece_of
from ..state.records import Record, local_of, pieces_of
from ..state.sharding import Placer, rank_key
from .dcp import flatten

States = Callable[[bool], dict[str, Any]]
"""What torchtitan's own manager would save now, with or without the models' part."""

_VALUE_BYTES = 64 << 10  # a plain tensor up to this size that is made for the state dict is saved as a value


def with_dcp_files(contents: Contents, states: States, world: World) -> Contents:
    """The same contents, as a checkpoint of torch.distributed.checkpoint too. Collective."""
    view = world.agreed(lambda: _View(contents, states, world.rank), "nothing is registered")
    records = [*contents.records, *view.copies(world)]

    def check() -> None:
        contents.check()
        view.refresh()

    return replace(DcpFiles(world, records, view.pieces, view.values, view.paths).added_to(contents), check=check)


class _View:
    """The state dict of torchtitan."""

    def __init__(self, contents: Contents, states: States, rank: int) -> None:
        self._states, self._rank = states, rank
        self._flat, self.paths = flatten(states(True))
        self._count = len(contents.records)
        records, tensors = contents.records, pieces_of(contents.records)
        by_memory = {_memory(tensor): i for i, tensor in enumerate(tensors) if tensor.numel() > 0}
        self.pieces: list[Piece] = []
        self._copies: list[Record] = []
        self._values: list[str] = []
        for key, value in self._flat.items():
            index = by_memory.get(_memory(local_of(value))) if torch.is_tensor(value) else None
            if index is not None:
                self.pieces.append(piece_of(key, index, records[index], tensors[index]))
            elif _is_value(value):
                self._values.append(key)
            else:
                self._copies += filter(None, [self._copy(key)])
        self._values_of_models = not set(self._values) <= flatten(states(False))[0].keys()

    def _copy(self, key: str) -> Record | None:
        return Placer(self._rank, groups.of_ranks([self._rank])).record(key, lambda: self._flat[key])

    def copies(self, world: World) -> list[Record]:
        """Records of the copies that no lower rank has, too; their pieces are added to the others. They belong to this
        rank, so that versions can be loaded that have others, or none. Collective."""
        of_ranks = world.gather([(record.key, record.offset) for record in self._copies])
        lower = {place for of_rank in of_ranks[:world.rank] for place in of_rank}
        own = [record for record in self._copies if (record.key, record.offset) not in lower]
        for i, record in enumerate(own):
            self.pieces.append(piece_of(record.key, self._count + i, record, record.current()))
        self._copies = own
        return [replace(record, key=rank_key(self._rank, f"torchtitan/{record.key}"), group=None, reshard="leave")
                for record in own]

    def refresh(self) -> None:
        """Before each save."""
        self._flat = flatten(self._states(bool(self._copies) or self._values_of_models))[0]

    def values(self) -> dict[str, Any]:
        """What has no record, as it was at the last refresh."""
        return {key: _on_cpu(self._flat[key]) for key in self._values if key in self._flat}


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.device


def _on_cpu(value: Any) -> Any:
    """torch.load puts a tensor of a value onto the device that it was on, which need not be there."""
    return value.detach().cpu() if torch.is_tensor(value) else value


def _is_value(value: Any) -> bool:
    if not torch.is_tensor(value):
        return True
    return not isinstance(value, DTensor) and value.numel() * value.element_size() <= _VALUE_BYTES
