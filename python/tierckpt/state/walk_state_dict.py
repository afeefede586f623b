# SPDX-License-Identifier: Apache-2.0
"""From a state dict to the records of its tensors, and one JSON value with everything else.

A new state dict is made for each save, so records find their tensors by name in the last one that was given."""

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch.distributed import ProcessGroup
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint.stateful import Stateful
from torch.distributed.tensor import DTensor

from .. import errors
from ..runtime.world import World
from . import groups, jsonstate
from .blobs import Blob
from .dcp_files import DcpFiles, piece_of
from .records import AS_PAIRS, Record, local_of, whole
from .sharding import Placer, rank_key
from .twins import confirm

LEAVES, PATHS = "state_dict", "state_dict_paths"  # names of the blobs
EAGER_BYTES = 1 << 20  # a plain tensor below this size may be a counter, a buffer or a generator's state


def stateless(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """The dict with state_dict() in the place of Stateful objects, as torch.distributed.checkpoint has it."""
    return {key: value.state_dict() if isinstance(value, Stateful) else value for key, value in state_dict.items()}


@dataclass(frozen=True)
class Rules:
    """What the user says about plain tensors, and about values that JSON cannot hold."""

    replicate_group: ProcessGroup | None = None  # whose ranks hold copies of the plain tensors
    private: tuple[str, ...] = ()  # patterns of keys that belong to each rank alone even so
    pickle_leaves: bool = False
    scope: str = ""  # prefix of each key: state dicts of several scopes have the same keys for different things


@dataclass(frozen=True)
class Piece:
    """What this rank holds of a tensor."""

    dtype: torch.dtype
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]


class StateDict:
    """The state dict that is registered. `flat` has no nested dicts: {"model.weight": tensor, ...}. `paths` says where
    each value came from: ("model", "weight"). Collective over `world`."""

    def __init__(self, flat: dict[str, Any], paths: dict[str, tuple[Any, ...]], world: World, rules: Rules) -> None:
        self._now = flat
        self._rules = rules
        self.paths = paths
        self._paths_text = _text_of_paths(paths, flat)
        self._form = _form(flat)
        self._world = world
        self._leaves: dict[str, object] = {}
        self._found = found = self._records(flat)
        self.records: list[Record] = list(found.values())
        self.pieces = {key: _piece(record) for key, record in found.items()}
        self.devices = {key: record.current().device for key, record in found.items()}
        confirm(self.records, world)

    # ---- tensors

    def _records(self, flat: dict[str, Any]) -> dict[str, Record]:
        scope = self._rules.scope
        holders = _holders(self._world.gather([scope + key for key, value in flat.items() if _is_plain(value)]))
        placer = Placer(self._world.rank, None)
        records = {}
        for key, value in flat.items():
            if isinstance(value, DTensor):
                records[key] = self._in_world(placer.record(scope + key, self._finder(key), eager=value.dim() == 0))
            elif isinstance(value, ShardedTensor):
                records[key] = self._shard(key, value)
            elif torch.is_tensor(value):
                records[key] = self._plain(key, value, holders[scope + key])
        return {key: record for key, record in records.items() if record is not None}

    def _in_world(self, record: Record | None) -> Record | None:
        """The record with the group in which the ranks of this world hold the same: a mesh may have others, too."""
        if record is None or self._world.members is None:
            return record
        return replace(record, group=groups.within(record.group, self._world.members))

    def _shard(self, key: str, tensor: ShardedTensor) -> Record | None:
        """This rank's piece of a tensor of FullyShardedDataParallel without a mesh. A rank may have none."""
        shards = tensor.local_shards()
        if len(shards) > 1:
            raise errors.UnsupportedError(f"{key} is a ShardedTensor of which this rank holds {len(shards)} pieces, "
                                          "and only a single one can be saved")
        if not shards:
            return None
        return Record(self._rules.scope + key, self._finder(key), tuple(tensor.size()),
                      tuple(shards[0].metadata.shard_offsets), None, eager=False)

    def _plain(self, key: str, tensor: torch.Tensor, holders: list[int]) -> Record:
        """The lowest of the ranks that have this key saves under the plain name, which other programs and other numbers
        of ranks load."""
        group = self._group_of(key)
        owner = group.ranks[0]
        name = self._rules.scope + key
        name = name if owner == holders[0] else rank_key(owner, name)
        small = tensor.numel() * tensor.element_size() < EAGER_BYTES
        return whole(name, self._finder(key), group.name, tensor.dim() == 0 or (small and group.name is None))

    def _group_of(self, key: str) -> groups.Group:
        rules = self._rules
        if rules.replicate_group is None or any(fnmatchcase(key, pattern) for pattern in rules.private):
            return groups.of_ranks([self._world.rank])
        found, members = groups.of_process_group(rules.replicate_group), self._world.members
        return found if members is None else groups.of_ranks(map(members.index, set(found.ranks) & set(members)))

    def _finder(self, key: str) -> Callable[[], torch.Tensor]:
        return lambda: _here(self._now[key])

    def changed(self, flat: dict[str, Any], paths: dict[str, tuple[Any, ...]]) -> str | None:
        """Why this state dict cannot be saved with the layout that was registered; None if it can."""
        new = [key for key in paths if key not in self.paths]
        return _difference(self._form, _form(flat)) or (f"{new[0]} was not there" if new else None)

    def covers(self, flat: dict[str, Any]) -> bool:
        """Whether the tensors of this state dict are among the registered ones, in the same pieces."""
        form = _form(flat)
        return all(self._form.get(key) == form[key] for key in _tensors(form))

    def take(self, flat: dict[str, Any]) -> None:
        """Takes the state dict of the next save. Raises LayoutError if its tensors differ from the registered ones."""
        changed = _difference(self._form, _form(flat))
        if changed:
            raise errors.LayoutError(f"{changed}: the state dict has another layout than the one that was registered; "
                                     "close this and attach again with the new one")
        self._now = flat

    def land(self, targets: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Chooses where a restore puts each piece: into its target, or else into new memory. Returns these tensors by
        key."""
        landing = {key: target for key, target in targets.items() if key in self.pieces}
        for key, piece in self.pieces.items():
            if key not in landing:
                landing[key] = torch.empty(piece.shape, dtype=piece.dtype, device=self.devices[key])
        self._now = landing
        return landing

    # ---- the rest

    def blobs(self, capacity: int | None) -> list[Blob]:
        return [Blob(self._rules.scope + LEAVES, self._capture, self._apply, capacity),
                Blob(self._rules.scope + PATHS, lambda: self._paths_text, lambda _text: None)]

    def leaves_of(self, flat: dict[str, Any]) -> dict[str, Any]:
        """What the blob LEAVES holds for this state dict."""
        plain, pickled = {}, {}
        for key, value in flat.items():
            if torch.is_tensor(value):
                continue
            if self._rules.pickle_leaves and not _is_json(key, value):
                pickled[key] = _pickle(value)
            else:
                plain[key] = value
        return {"plain": plain, "pickled": pickled}

    def _capture(self) -> dict[str, Any]:
        return self.leaves_of(self._now)

    def _apply(self, saved: dict[str, Any]) -> None:
        self._leaves = saved

    def dcp_files(self) -> DcpFiles:
        """What makes published versions a checkpoint of torch.distributed.checkpoint. Collective."""
        index = {id(record): i for i, record in enumerate(self.records)}
        pieces = [piece_of(key, index[id(record)], record, record.current()) for key, record in self._found.items()
                  if record.key == key]  # not what belongs to one rank beside that of a lower one
        return DcpFiles(self._world, self.records, pieces, lambda: values_among(self._now), self.paths)

    def leaf_keys(self) -> list[str]:
        """The keys of the values of the registered state dict that are no tensors."""
        return [key for key, form in self._form.items() if form == _LEAF]

    def leaf(self, key: str) -> io.BytesIO:
        """A value after a restore, in the form that planners of torch.distributed.checkpoint expect."""
        return leaf_bytes(self._leaves, key)


_LEAF = "no tensor"


def values_among(flat: dict[str, Any]) -> dict[str, Any]:
    """What are no tensors."""
    return {key: value for key, value in flat.items() if not torch.is_tensor(value)}


def leaf_bytes(saved: dict[str, Any], key: str) -> io.BytesIO:
    """One of the values in the blob LEAVES, as bytes for torch.load. Raises NotFoundError."""
    if key in saved["pickled"]:
        return io.BytesIO(saved["pickled"][key])
    if key not in saved["plain"]:
        raise errors.NotFoundError(f"{key} was not saved")
    return io.BytesIO(_pickle(saved["plain"][key]))


def _text_of_paths(paths: dict[str, tuple[Any, ...]], flat: dict[str, Any]) -> str:
    """Of numbers that files have as pairs, the dtype follows: files do not say that they are complex."""
    dtypes = {key: str(value.dtype).removeprefix("torch.") for key, value in flat.items()
              if torch.is_tensor(value) and value.dtype in AS_PAIRS}
    return json.dumps([[key, list(path), *([dtypes[key]] if key in dtypes else [])] for key, path in paths.items()])


def paths_of(text: str) -> dict[str, tuple[Any, ...]]:
    """The paths in the blob PATHS."""
    return {key: tuple(path) for key, path, *_ in json.loads(text)}


def pairs_of(text: str) -> dict[str, torch.dtype]:
    """The dtypes of tensors that files have as pairs, from the blob PATHS."""
    return {key: getattr(torch, dtype[0]) for key, _, *dtype in json.loads(text) if dtype}


def _piece(record: Record) -> Piece:
    """As the state dict has it, also if files have each number as a pair."""
    now = record.current()
    return Piece(_dtype(record), record.global_shape[:now.dim()], record.offset[:now.dim()], tuple(now.shape))


def _pickle(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _is_json(key: str, value: Any) -> bool:
    try:
        jsonstate.dumps(key, value)
    except errors.UnsupportedError:
        return False
    return True


def _is_plain(value: Any) -> bool:
    return torch.is_tensor(value) and not isinstance(value, (DTensor, ShardedTensor))


def _here(value: Any) -> torch.Tensor:
    """The tensor of a record: of a ShardedTensor, the piece of this rank."""
    found: torch.Tensor = value.local_shards()[0].tensor if isinstance(value, ShardedTensor) else value
    return found


def _holders(keys_by_rank: list[list[str]]) -> dict[str, list[int]]:
    holders: dict[str, list[int]] = {}
    for rank, keys in enumerate(keys_by_rank):
        for key in keys:
            holders.setdefault(key, []).append(rank)
    return holders


def _dtype(record: Record) -> torch.dtype:
    return record.current().dtype


def _form(flat: dict[str, Any]) -> dict[str, object]:
    return {key: _form_of(value) for key, value in flat.items()}


def _form_of(value: Any) -> str:
    if not torch.is_tensor(value):
        return _LEAF
    if isinstance(value, ShardedTensor):
        places = [shard.metadata.shard_offsets for shard in value.local_shards()]
        return f"{value.dtype} {tuple(value.size())} in shards, here at {places}"
    where = f" {value.placements}" if isinstance(value, DTensor) else ""
    return f"{value.dtype} {tuple(value.shape)}{where}, here {tuple(local_of(value).shape)}"


def _difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first tensor that has changed. Other values may come and go."""
    for key in sorted(_tensors(before) | _tensors(now)):
        was, is_now = before.get(key, "not there"), now.get(key, "not there")
        if was != is_now:
            return f"{key} was {was} and is {is_now}"
    return None


def _tensors(form: dict[str, Any]) -> set[str]:
    return {key for key, value in form.items() if value != _LEAF}
