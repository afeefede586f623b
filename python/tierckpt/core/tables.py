# SPDX-License-Identifier: Apache-2.0
"""Whether the agents' memory has versions of another layout than the one that is about to be registered.

Both sides are sums over the entries of all shards; docs/formats.md defines them. The capacities of blobs are left out,
because a load adapts to those."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..runtime import control
from ..runtime.native import Version
from ..runtime.settings import ConfigSource, Overrides
from ..state.blobs import blob_key
from ..state.contents import Contents
from ..state.records import Record, dtype_name, pieces_of, saved_dtype, saved_shape
from ..state.sharding import rank_key

_MASK = (1 << 64) - 1


def _number(*words: str) -> int:
    return int.from_bytes(hashlib.sha256("\n".join(words).encode()).digest()[:8], "little")


def _list(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers))


def _of_record(record: Record, tensor: torch.Tensor) -> int:
    return _number(record.key, dtype_name(saved_dtype(tensor)), _list(record.global_shape), _list(record.offset),
                   _list(saved_shape(tensor)))


def of_contents(contents: Contents, rank: int) -> dict[str, int]:
    """The sums of this rank by replica group; for its own entries by the number of the rank."""
    sums: dict[str, int] = {}
    for record, tensor in zip(contents.records, pieces_of(contents.records), strict=True):
        name = record.group or rank_key(rank, "")
        sums[name] = (sums.get(name, 0) + _of_record(record, tensor)) & _MASK
    own = rank_key(rank, "")
    for blob in contents.blobs:
        sums[own] = (sums.get(own, 0) + _number(blob_key(rank, blob.name), "blob")) & _MASK
    return sums


@dataclass(frozen=True)
class Held:
    """What the agent of one node reports about the last version that its world has committed."""

    node: str
    version: Version
    shards: int
    """The number of shards of a version, on all nodes."""
    tables: dict[str, int] = field(default_factory=dict)
    """Of the shards that this node has copies of, by id."""


def held_by(status: dict[str, Any] | None, ranks: int) -> Held | None:
    """None if storage has everything that memory has, or if it is of another number of ranks."""
    committed = control.version_of(status, "committed")
    if status is None or status.get("ranks") != ranks or committed <= control.version_of(status, "published"):
        return None
    return Held(status["node"], committed, status["shards"])


def looked_up(held: Held, config: ConfigSource, overrides: Overrides) -> Held:
    """The same with the tables."""
    tables = {}
    for segment in (control.ask(config, overrides, "show") or {}).get("segments", ()):
        there = any(slot["committed"] and slot["state"] == "verified"
                    and control.version_of(slot, "version") == held.version for slot in segment["slots"])
        if there and segment["table"]:
            tables[segment["shard"]] = int(segment["table"], 16)
    return Held(held.node, held.version, held.shards, tables)


def other_than(contents: list[Mapping[str, int]], found: list[Held]) -> Version | None:
    """The newest version, if it is complete and its layout differs from that of the contents of all ranks. Also None if
    that cannot be determined."""
    newest = max(held.version for held in found)
    tables: dict[str, int] = {}
    for held in found:
        if held.version == newest:
            tables.update(held.tables)
    shards = next(held.shards for held in found if held.version == newest)
    groups = {name: total for of_rank in contents for name, total in of_rank.items()}
    same = sum(tables.values()) & _MASK == sum(groups.values()) & _MASK
    return newest if len(tables) == shards and not same else None
