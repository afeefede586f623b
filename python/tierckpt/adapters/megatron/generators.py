# SPDX-License-Identifier: Apache-2.0
"""Whose generators of random numbers a rank goes on with, if a version was saved with other parallel sizes. Pure.

Megatron seeds generators by a rank's place in those kinds of parallelism whose ranks have to draw different numbers,
and alike for all others. So a rank takes those of one that had the same place in these. If there was none, it derives
its own from those of another rank, and all ranks that have to draw the same numbers derive the same.
"""

import hashlib
from dataclasses import dataclass

import torch

from ...state.blobs import lender

_ALONG = {"model-parallel-rng": ("pp", "tp"), "expert-parallel-rng": ("pp", "etp", "ep")}
_CUDA_STATE_BYTES = 16  # the seed, and how many numbers were drawn


@dataclass(frozen=True)
class Place:
    """Of a rank: in each kind of model parallelism, and its number among those of the same place."""

    at: dict[str, int]
    number: int


@dataclass(frozen=True)
class Choice:
    """The rank whose generators are taken. `seed`: what a new generator is derived from, besides these; None: they are
    taken as they are."""

    rank: int
    seed: int | None


def along(name: str) -> tuple[str, ...]:
    """The kinds of parallelism in which the ranks draw different numbers from this generator of Megatron's."""
    return _ALONG.get(name, ("pp",))


def choose(saved: dict[int, Place], own: Place, kinds: tuple[str, ...], replicas_draw_alike: bool) -> Choice:
    same = [rank for rank, place in saved.items() if all(place.at[kind] == own.at[kind] for kind in kinds)]
    nearest = min(same or saved, key=lambda rank: (_difference(saved[rank], own) if same else 0, rank))
    twins = sorted((rank for rank, place in saved.items() if place.at == saved[nearest].at),
                   key=lambda rank: saved[rank].number)
    is_new = own.number >= len(twins) and not replicas_draw_alike
    seed = _seed(own, kinds, is_new) if is_new or not same else None
    return Choice(twins[lender(own.number, len(twins))], seed)


def _difference(a: Place, b: Place) -> int:
    return sum(a.at[kind] != b.at[kind] for kind in a.at)


def _seed(own: Place, kinds: tuple[str, ...], is_new: bool) -> int:
    words = [f"{kind}{own.at[kind]}" for kind in kinds] + ([f"number{own.number}"] if is_new else [])
    return _number(" ".join(words).encode())


def _number(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") >> 1  # torch's seeds are signed


def derived(state: bytes, seed: int) -> bytes:
    """The state of a generator that is seeded with this and with the state of another one."""
    number = _number(seed.to_bytes(8, "little") + state)
    if len(state) == _CUDA_STATE_BYTES:
        return number.to_bytes(8, "little") + bytes(8)
    return torch.Generator().manual_seed(number).get_state().numpy().tobytes()
