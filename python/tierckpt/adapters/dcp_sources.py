# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed.checkpoint loads from: the layout that is attached, or a published version in any sharding."""

import io
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType

from .. import errors
from ..core.publish_first import newest_published, only_in_memory, published_or_none
from ..core.published import Published
from ..runtime import control, native
from ..runtime.settings import ConfigSource, Overrides
from ..state import jsonstate
from ..state.records import saved_dtype, saved_shape
from ..state.sharding import rank_key, split_rank
from ..state.walk_state_dict import LEAVES, PATHS, Piece, leaf_bytes, pairs_of, paths_of


def source(tiers: Any, config: ConfigSource, overrides: Overrides, step: int | None,
           scope: str = "") -> "_Registered | _Published":
    """What to load of a step, or of the newest if it is None. `tiers` is a tierckpt.dcp.Tiers; without it, or before it
    is attached, only published versions count."""
    if tiers is None or not tiers.attached:
        return _Published(newest_published(config, overrides, step), scope)
    plan = (tiers.take_plan(step) or {}).get("plan")
    other = other_layout(plan)
    if other <= control.version_of(plan, "version"):
        return _Registered(tiers, step)
    published = published_or_none(config, overrides, step)
    if published is None or published.version < other:
        raise errors.LayoutError(only_in_memory(other))
    return _Published(published, scope, tiers)


def other_layout(plan: dict[str, Any] | None) -> native.Version:
    """The version of another layout that a restore would read from storage, else the newest one that it cannot
    restore."""
    resharded = control.version_of(plan, "resharded")
    return resharded if resharded > native.NO_VERSION else max(
        (control.version_of(passed, "version") for passed in (plan or {}).get("passed_over", ())
         if passed.get("other_layout")), default=native.NO_VERSION)


class _Registered:
    """The attached layout: each rank loads its own pieces, from memory here or elsewhere, or from storage."""

    version = None  # the agents choose one for all ranks
    directory = None

    def __init__(self, tiers: Any, step: int | None) -> None:
        self._tiers, self._asked = tiers, step
        self._walk, self._world = tiers.walk, tiers.world
        self.step: int | None = None

    def metadata(self) -> Metadata:
        table, mine = _Table(), (self._walk.pieces, self._walk.leaf_keys())
        for pieces, leaves in [mine] if self._tiers.scope else self._world.gather(mine):
            for key, piece in pieces.items():
                table.add(key, piece)
            table.add_leaves(leaves)
        return table.metadata(self._walk.paths)

    def read(self, plan: Any, planner: Any) -> None:
        tensors, leaves = _split(plan)
        resolved = self._world.agreed(lambda: self._resolve_all(tensors, planner))
        targets = {item.storage_index.fqn: tensor.detach() for item, tensor in zip(tensors, resolved, strict=True)
                   if self._is_whole(item, tensor)}
        landing = self._walk.land(targets)
        self.step = self._tiers.restore(self._asked)
        if self.step is None:
            raise errors.NotFoundError("nothing was saved yet: ask newest() before a load")
        for item, tensor in zip(tensors, resolved, strict=True):
            key = item.storage_index.fqn
            if key not in targets:
                tensor.detach().copy_(_part(landing[key], item))
            planner.commit_tensor(item, tensor)
        for item in leaves:
            planner.load_bytes(item, self._walk.leaf(item.storage_index.fqn))

    def _resolve_all(self, items: list[Any], planner: Any) -> list[torch.Tensor]:
        """A partial load would leave the rest torn, and would count as a complete one."""
        if self._tiers.torn and not self._tiers.fills(_keys(items)):
            raise errors.CorruptError("a load failed after it had begun to write the state dict, which holds parts of "
                                      "several states: load all of it, not a part")
        return [self._resolve(item, planner) for item in items]

    def _resolve(self, item: Any, planner: Any) -> torch.Tensor:
        """The destination of an item. The item asks for a part of one piece, which must be this rank's."""
        piece = self._walk.pieces.get(item.storage_index.fqn)
        if piece is None or piece.offset != tuple(item.storage_index.offset or piece.offset):
            raise errors.LayoutError(
                f"{item.storage_index.fqn} is asked for with another sharding than was attached: load with that one, "
                "or what is published with tierckpt.dcp.StorageReader")
        return planner.resolve_tensor(item)

    def _is_whole(self, item: Any, tensor: torch.Tensor) -> bool:
        """Whether the piece can be loaded straight into this tensor."""
        piece = self._walk.pieces[item.storage_index.fqn]
        return (tuple(item.lengths) == piece.shape == tuple(tensor.shape) and tensor.dtype == piece.dtype
                and tensor.device == self._walk.devices[item.storage_index.fqn] and tensor.is_contiguous())


class _Published:
    """A published version, in any sharding."""

    def __init__(self, published: Published, scope: str = "", tiers: Any = None) -> None:
        """tiers: attached to another layout."""
        self._published, self._scope, self._tiers = published, scope, tiers
        self.version = published.version
        self.directory = published.info.path
        self.step = published.step
        self._leaves = self._blobs(LEAVES)
        self._path_texts = self._blobs(PATHS)
        self._pairs = {key: dtype for text in self._path_texts for key, dtype in pairs_of(text).items()}

    def _blobs(self, name: str) -> list[Any]:
        """Of this name, of all ranks that have saved one, the lowest rank first."""
        found = {entry.rank: entry.key for entry in self._published.entries if entry.blob and entry.rank is not None
                 and entry.key == rank_key(entry.rank, f"tierckpt.{self._scope}{name}")}
        return [jsonstate.loads(self._published.blob(key, rank)) for rank, key in sorted(found.items())]

    def _tensors(self) -> Iterator[tuple[str, native.Entry]]:
        """(key, entry) of each piece; not what is a rank's own beside what another has saved under the plain name."""
        for entry in self._published.entries:
            if not entry.blob and entry.key.startswith(self._scope) and split_rank(entry.key)[0] is None:
                yield entry.key.removeprefix(self._scope), entry

    def metadata(self) -> Metadata:
        table, paths = _Table(), {}
        for key, entry in self._tensors():
            dims = len(entry.global_shape) - (key in self._pairs)
            table.add(key, Piece(self._pairs.get(key, self._published.dtype(entry.key)), entry.global_shape[:dims],
                                 entry.offset[:dims], entry.local_shape[:dims]))
        for leaves in self._leaves:
            table.add_leaves((*leaves["plain"], *leaves["pickled"]))
        for text in reversed(self._path_texts):
            paths.update(paths_of(text))
        return table.metadata(paths)

    def read(self, plan: Any, planner: Any) -> None:
        tensors, leaves = _split(plan)
        for item in tensors:
            tensor = planner.resolve_tensor(item)
            offset = [begin + at for begin, at in zip(item.storage_index.offset, item.storage_offsets, strict=True)]
            key = self._scope + item.storage_index.fqn
            _read(self._published, key, offset, tensor.detach(), self._pairs.get(item.storage_index.fqn))
            planner.commit_tensor(item, tensor)
        for item in leaves:
            planner.load_bytes(item, self._leaf(item.storage_index.fqn))
        self._published.close()
        if self._tiers is not None and self._tiers.torn and self._tiers.fills(_keys(tensors)):
            self._tiers.filled_elsewhere()

    def _leaf(self, key: str) -> io.BytesIO:
        """The value that was saved by the lowest of the ranks that have it."""
        return leaf_bytes(next(saved for saved in self._leaves if key in (*saved["plain"], *saved["pickled"])), key)


def _read(version: Published, key: str, offset: list[int], tensor: torch.Tensor, pairs: torch.dtype | None) -> None:
    """Tensors of another dtype than the one that was saved are converted, as DCP does it. `pairs`: the dtype of numbers
    that files have as pairs."""
    if pairs is None and version.dtype(key) == saved_dtype(tensor):
        version.read_box(key, offset, tuple(saved_shape(tensor)), out=tensor)
    elif pairs is None:
        tensor.copy_(version.read_box(key, offset, tuple(tensor.shape)))
    elif pairs == tensor.dtype:
        version.read_box(key, [*offset, 0], (*tensor.shape, 2), out=tensor)
    else:
        tensor.copy_(torch.view_as_complex(version.read_box(key, [*offset, 0], (*tensor.shape, 2))))


def _split(plan: Any) -> tuple[list[Any], list[Any]]:
    tensors = [item for item in plan.items if item.type != LoadItemType.BYTE_IO]
    return tensors, [item for item in plan.items if item.type == LoadItemType.BYTE_IO]


def _keys(items: list[Any]) -> set[str]:
    return {item.storage_index.fqn for item in items}


def _part(piece: torch.Tensor, item: Any) -> torch.Tensor:
    for dim, (at, size) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
        piece = piece.narrow(dim, at, size)
    return piece


class _Table:
    """What a Metadata object says about each key."""

    def __init__(self) -> None:
        self._whole: dict[str, Piece] = {}
        self._chunks: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {}
        self._leaves: set[str] = set()

    def add(self, key: str, piece: Piece) -> None:
        """Replicas have the same place, which is to be read once."""
        self._whole[key] = piece
        self._chunks.setdefault(key, {})[piece.offset] = piece.shape

    def add_leaves(self, keys: Iterable[str]) -> None:
        self._leaves.update(keys)

    def metadata(self, paths: dict[str, tuple[Any, ...]]) -> Metadata:
        table: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
        table.update({key: BytesStorageMetadata() for key in self._leaves})
        for key, piece in self._whole.items():
            chunks = [ChunkStorageMetadata(torch.Size(offset), torch.Size(shape))
                      for offset, shape in self._chunks[key].items()]
            table[key] = TensorStorageMetadata(TensorProperties(dtype=piece.dtype), torch.Size(piece.global_shape),
                                               chunks)
        return Metadata(table, planner_data={key: paths.get(key, (key,)) for key in table})
