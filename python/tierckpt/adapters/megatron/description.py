# SPDX-License-Identifier: Apache-2.0
"""What a rank has of the model, in terms that hold for every layout: saved with each version, so that a training with
other parallel sizes can find what it needs."""

import base64
import json
import zlib
from dataclasses import dataclass
from typing import Any

from .generators import Place
from .parts import Part, Sizes


@dataclass(frozen=True)
class Local:
    """A parameter or buffer of a rank."""

    dtype: str
    sizes: Sizes
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class Description:
    """Of one rank; the same for all ranks that hold the same."""

    at: dict[str, int]
    """The rank's place in each kind of model parallelism: pp, tp, etp, ep."""
    tensors: dict[str, Local]
    """By their keys."""
    objects: dict[str, str]
    """Names that hold for every layout, by those of modules here that have a state other than tensors."""
    lacks: str | None = None
    """Why there is no description: Megatron could not make it."""

    def text(self) -> str:
        """Short: names and shapes resemble each other, and each rank saves it with each version."""
        value = {"at": self.at, "objects": self.objects, "lacks": self.lacks,
                 "tensors": {key: [local.dtype, local.sizes, [list(vars(part).values()) for part in local.parts]]
                             for key, local in self.tensors.items()}}
        return base64.b64encode(zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 9)).decode()


def from_text(text: str) -> Description:
    value = json.loads(zlib.decompress(base64.b64decode(text)))
    tensors = {key: Local(dtype, tuple(sizes), tuple(map(_part, parts)))
               for key, (dtype, sizes, parts) in value["tensors"].items()}
    return Description(value["at"], tensors, value["objects"], value["lacks"])


def _part(values: list[Any]) -> Part:
    key, whole, offset, sizes, start, strides, flexible = values
    return Part(key, tuple(whole), tuple(offset), tuple(sizes), start, tuple(strides), flexible)


@dataclass(frozen=True)
class Saved:
    """The ranks that saved a version."""

    places: dict[int, str]
    descriptions: dict[str, Description]  # by place, in the order of the first rank of each

    def seats(self) -> dict[int, Place]:
        """Each rank's place, and its number among those of the same place."""
        met: dict[str, int] = {}
        seats = {}
        for rank, place in sorted(self.places.items()):
            seats[rank] = Place(self.descriptions[place].at, met.get(place, 0))
            met[place] = met.get(place, 0) + 1
        return seats

    def has_same(self, here: "Here") -> bool:
        """Whether there were ranks of its place that had the same parts of the same tensors."""
        before = self.descriptions.get(here.place)
        return before is not None and before.tensors == here.description.tensors

    def first_of(self, place: str) -> int:
        return min(rank for rank, other in self.places.items() if other == place)


@dataclass(frozen=True)
class Here:
    """This rank."""

    place: str
    description: Description
    number: int
    replicas_draw_alike: bool

    def seat(self) -> Place:
        return Place(self.description.at, self.number)
