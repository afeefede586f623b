# SPDX-License-Identifier: Apache-2.0
"""What an export has to know of a framework's layout: of which keys, and of which places in them, each whole tensor of
the model consists. Each rank saves what it knows as a blob, which `tierckpt export` reads (docs/formats.md, "Export
map"). A version with such blobs exports what they have, and nothing else."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..runtime.world import World
from . import jsonstate
from .blobs import Blob
from .records import dtype_name, saved_dtype, saved_shape

NAME = "export"
_FORMAT = 1
_GRAIN = 4096  # bytes


@dataclass(frozen=True)
class Part:
    """A box of a whole tensor, and where its elements are."""

    key: str  # of what is saved
    held: tuple[int, ...]  # the shape of that; it may be saved as one dimension
    start: tuple[int, ...]  # of the box in that
    size: tuple[int, ...]
    at: tuple[int, ...]  # of the box in the whole

    def declared(self, whole: tuple[int, ...]) -> dict[str, Any]:
        if self.held == self.size == whole:
            return {"key": self.key}
        return {"key": self.key, "held": list(self.held), "from": list(self.start), "size": list(self.size),
                "at": list(self.at)}


@dataclass
class Whole:
    """A whole tensor, and this rank's parts of it."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    parts: list[Part]
    refused: str = ""  # why it cannot be exported

    def declared(self) -> dict[str, Any]:
        if self.refused:
            return {"name": self.name, "refused": self.refused}
        return {"name": self.name, "dtype": dtype_name(self.dtype), "shape": list(self.shape),
                "parts": [part.declared(self.shape) for part in self.parts]}


def as_saved(name: str, tensor: torch.Tensor, shape: Iterable[int] | None = None) -> Whole:
    """A tensor that is saved under its own name. `shape`: that of the whole, if it differs from the tensor's."""
    whole = tuple(saved_shape(tensor) if shape is None else shape)
    return Whole(name, saved_dtype(tensor), whole, [Part(name, whole, (0,) * len(whole), whole, (0,) * len(whole))])


def blob_of(tensors: Iterable[Whole], numbers: Mapping[str, int], world: World) -> Blob:
    """`numbers` are properties of the model, such as the number of its attention heads. Of ranks that declare the same,
    the first one saves it, and the others save its number. Collective."""
    by_name = sorted(tensors, key=lambda tensor: tensor.name)  # ranks may find the same ones in another order
    value = {"format": _FORMAT, "numbers": dict(numbers), "tensors": [tensor.declared() for tensor in by_name]}
    digests = world.gather(hashlib.blake2b(jsonstate.dumps(NAME, value), digest_size=16).digest())
    first = digests.index(digests[world.rank])
    if first != world.rank:
        value = {"format": _FORMAT, "same": first}
    size = len(jsonstate.dumps(NAME, value))
    return Blob(NAME, _giving(value), lambda _: None, -(-size // _GRAIN) * _GRAIN, reshard="leave", declaration=True)


def _giving(value: object) -> Callable[[], object]:
    return lambda: value
