# SPDX-License-Identifier: Apache-2.0
"""Checks once, where a framework declares it, that ranks really hold the same bytes."""

import hashlib
from typing import Any

import torch

from .. import errors
from ..runtime.world import World
from .records import Record, pieces_of

_Thing = tuple[str | None, str, tuple[int, ...]]
"""Group, key and offset of a record."""

_Sums = dict[_Thing, bytes]


def confirm(records: list[Record], world: World) -> None:
    """Raises InvalidArgumentError on every rank, with the record and two of the ranks, if ranks of one group differ in
    a record that is not eager. Reads each of them once. Eager records, such as counters and buffers, may differ for a
    while and are left out. Collective."""
    shared = [record for record in records if record.group is not None and not record.eager]
    sums: _Sums = {(record.group, record.key, record.offset): _sum(tensor)
                   for record, tensor in zip(shared, pieces_of(shared), strict=True)}
    if not _differing(world.gather(_by_group(sums))):
        return
    bad = _differing(world.gather(sums))
    (group, key, _), by_rank = min(bad.items())
    raise errors.InvalidArgumentError(
        f"{key} is said to be the same on {group}, but ranks {_first_pair(by_rank)} hold other bytes, and "
        f"{len(bad) - 1} more differ: give each rank the same values before this, or say that they are not twins")


def _sum(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.blake2b(flat.numpy().data, digest_size=16).digest()


def _by_group(sums: _Sums) -> _Sums:
    """One digest per group, so that little is sent if all is well."""
    groups: dict[_Thing, Any] = {}
    for (group, key, offset), value in sorted(sums.items()):
        groups.setdefault((group, "", ()), hashlib.blake2b(digest_size=16)).update(repr((key, offset)).encode() + value)
    return {name: total.digest() for name, total in groups.items()}


def _differing(gathered: list[_Sums]) -> dict[_Thing, dict[int, bytes]]:
    """The things of which ranks have different digests: {thing: {rank: digest}}."""
    seen: dict[_Thing, dict[int, bytes]] = {}
    for rank, sums in enumerate(gathered):
        for thing, value in sums.items():
            seen.setdefault(thing, {})[rank] = value
    return {thing: by_rank for thing, by_rank in seen.items() if len(set(by_rank.values())) > 1}


def _first_pair(by_rank: dict[int, bytes]) -> str:
    first = min(by_rank)
    other = min(rank for rank, value in by_rank.items() if value != by_rank[first])
    return f"{first} and {other}"
