# SPDX-License-Identifier: Apache-2.0
"""Loads what was saved by another number of ranks, or in other pieces. Each rank reads its own part from storage.

The library does this by itself where every value has a rule for it (Blob.reshard, Record.reshard). What it refuses is
read here: values that have to be chosen or put together from those of several ranks, tensors of single ranks without a
rule, and values for which this rank has reserved less room than the one that saved them. Memory holds only versions of
the layout that saves them, so both are for versions on storage.
"""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from .. import errors
from ..core.checkpoint import Checkpoint, warn_of_derived
from ..core.published import Published, open_published
from ..runtime.settings import ConfigSource, Overrides
from ..runtime.world import World
from ..state import jsonstate
from ..state.blobs import Blob, alike, lender
from ..state.contents import Contents
from ..state.records import Record, pieces_of, saved_dtype, saved_shape
from ..state.sharding import rank_key

log = logging.getLogger("tierckpt")


def load_any_layout(checkpoint: Checkpoint, contents: Contents, world: World, step: int | None = None, *,
                    config: ConfigSource = None, overrides: Overrides = None) -> int | None:
    """Does checkpoint.load_checkpoint. If that finds nothing but versions of another layout that it refuses, or an
    older version than storage has, the version on storage is loaded. Collective. `config` and `overrides` are those of
    attach. Returns the step, None if nothing was saved. Raises LayoutError, with nothing changed, if that version lacks
    something or has it in another shape."""
    loaded, why = None, None
    try:
        loaded = checkpoint.load_checkpoint(step)
        if loaded is None or checkpoint.restored is None or not checkpoint.restored.passed_over:
            _tell(checkpoint, loaded)
            return loaded
    except (errors.LayoutError, errors.UnrecoverableError, errors.NoSpaceError) as error:
        why = error
    published = _of_another_layout(contents, world, step, config, overrides)
    if published is None and why is not None:
        raise why
    if published is None:
        _tell(checkpoint, loaded)
        return loaded
    # After a failed load `restored` may still describe an earlier one.
    if loaded is not None and checkpoint.restored is not None and published.version <= checkpoint.restored.version:
        published.close()
        _tell(checkpoint, loaded)
        return loaded
    log.warning("step %d was saved in another layout: what is on storage is read for this number of ranks (%s)",
                published.step, why or f"the newest of this one is step {loaded}")
    with published:
        _check(published, contents, world)
        _read(published, contents, world)
        checkpoint.filled_elsewhere()
        return published.step


def _tell(checkpoint: Checkpoint, step: int | None) -> None:
    if step is not None and checkpoint.restored is not None and checkpoint.restored.resharded:
        log.warning("step %d was saved in another layout: what is on storage is read for this number of ranks (%d have "
                    "saved it)", step, checkpoint.restored.saved_world_size)


def _of_another_layout(contents: Contents, world: World, step: int | None, config: ConfigSource,
                       overrides: Overrides) -> Published | None:
    """The version on storage, unless it is of our own layout: reading that one would not help."""
    try:
        published = open_published(config, step=step, overrides=overrides)
    except errors.NotFoundError:
        return None
    if any(world.gather(_is_foreign(published, contents, world))):
        return published
    published.close()
    return None


def _is_foreign(published: Published, contents: Contents, world: World) -> bool:
    """Whether it was saved by other ranks, or in other pieces."""
    pieces = {(entry.key, tuple(entry.offset), tuple(entry.local_shape)) for entry in published.entries}
    own = {(record.key, tuple(record.offset), tuple(saved_shape(tensor))) for record, tensor in _with_pieces(contents)}
    if published.info.world_size != world.size or not own <= pieces:
        return True
    return _is_dealt_out(published, contents, world.rank)


def _is_dealt_out(published: Published, contents: Contents, rank: int) -> bool:
    """Whether other ranks saved a part of what this one needs of a blob."""
    present = {entry.key for entry in published.entries if entry.blob}
    for blob in (blob for blob in contents.blobs if blob.choose is not None):
        key = rank_key(rank, f"tierckpt.{blob.name}")
        try:
            blob.fits(jsonstate.loads(published.blob(key)) if key in present else {})
        except errors.LayoutError:
            return True
    return False


def _check(published: Published, contents: Contents, world: World) -> None:
    own = next(_faults(published, contents, world.rank), None)
    fault = next((fault for fault in world.gather(own) if fault), None)
    if fault is not None:
        raise errors.LayoutError(f"step {published.step} cannot be loaded into this training: {fault}")


def _faults(published: Published, contents: Contents, rank: int) -> Iterator[str]:
    sources = _Sources(published, rank)
    yield from filter(None, (_fault(published, record, tensor, sources.of(record.key))
                             for record, tensor in _with_pieces(contents)))
    for blob in contents.blobs:
        try:
            sources.value(blob)
        except errors.LayoutError as error:
            yield str(error)


def _with_pieces(contents: Contents) -> Iterable[tuple[Record, torch.Tensor]]:
    return zip(contents.records, pieces_of(contents.records), strict=True)


def _fault(published: Published, record: Record, tensor: torch.Tensor, key: str) -> str | None:
    if key not in published:
        return f"it has no {key}"
    shape, dtype = tuple(published.shape(key)), published.dtype(key)
    if shape != tuple(record.global_shape) or dtype != saved_dtype(tensor):
        return f"its {key} is {dtype} {shape}, here it is {saved_dtype(tensor)} {tuple(record.global_shape)}"
    return None


def _read(published: Published, contents: Contents, world: World) -> None:
    """Tensors first, some of which values need."""
    sources = _Sources(published, world.rank)
    for record, tensor in _with_pieces(contents):
        published.read_box(sources.of(record.key), record.offset, tuple(saved_shape(tensor)), out=tensor.detach())
    values = [(blob, sources.value(blob)) for blob in contents.blobs]
    common = _common(published, values, world)
    for blob, value in values:
        if value is not None:
            derivation = blob.derivation if world.rank >= published.info.world_size else None
            blob.apply(value if derivation is None else derivation.make(value, world.rank, common.get(blob.name, ())))
    contents.loaded()


def _common(published: Published, values: list[tuple[Blob, Any]], world: World) -> dict[str, set[str]]:
    """What alike returns, for the ranks that are new. Collective."""
    before = published.info.world_size
    if world.size <= before:
        return {}
    marks = {blob.name: blob.derivation.marks(value) for blob, value in values
             if blob.derivation is not None and value is not None}
    common = alike(world.gather(marks)[:before])
    if world.rank >= before:
        warn_of_derived(published.step, world.rank, before, marks)
    return common


class _Sources:
    """Where this rank's data are in a version. What belonged to a single rank comes from the rank of the same number.
    If there was none, it comes from the rank that the library would take it from, too."""

    def __init__(self, published: Published, rank: int) -> None:
        self._published, self._rank = published, rank
        self._blobs = {entry.key for entry in published.entries if entry.blob}

    def of(self, key: str) -> str:
        """The key of what is loaded as this tensor."""
        return self._of(key, self._published)

    def _of(self, key: str, present: Published | set[str]) -> str:
        own = rank_key(self._rank, "")
        if key in present or not key.startswith(own):
            return key
        name = key.removeprefix(own)
        lent = rank_key(lender(self._rank, self._published.info.world_size), name)
        return next((other for other in (lent, name) if other in present), key)

    def value(self, blob: Blob) -> Any:
        """The value of a blob for this rank, None if it was empty. Raises LayoutError if it does not fit."""
        if blob.declaration:
            return None
        values = map(jsonstate.loads, filter(None, map(self._published.blob, self._keys(blob))))
        value = next(values, None) if blob.choose is None else blob.choose(values)
        if value is not None:
            blob.fits(value)
        return value

    def _keys(self, blob: Blob) -> list[str]:
        """The keys of the values to read: that of this rank and, for a blob that chooses, those of all others."""
        name = f"tierckpt.{blob.name}"
        own = self._of(rank_key(self._rank, name), self._blobs)
        others = [] if blob.choose is None else [rank_key(other, name) for other in
                                                 range(self._published.info.world_size)]
        keys = [key for key in dict.fromkeys((own, *others)) if key in self._blobs]
        if not keys:
            raise errors.LayoutError(f"it has no {own}")
        return keys
