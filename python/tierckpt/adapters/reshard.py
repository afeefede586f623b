# SPDX-License-Identifier: Apache-2.0
"""Loads from storage what was saved by another number of ranks, or in other pieces. Each rank reads its own part.

Memory holds only versions of the layout that saves them, so this is for versions on storage.
"""

import logging
from collections.abc import Iterator
from typing import Any

from .. import errors
from ..core.checkpoint import Checkpoint
from ..core.published import Published, open_published
from ..runtime.settings import ConfigSource, Overrides
from ..runtime.world import World
from ..state import jsonstate
from ..state.blobs import Blob
from ..state.contents import Contents
from ..state.records import Record
from ..state.sharding import rank_key

log = logging.getLogger("tierckpt")


def load_any_layout(checkpoint: Checkpoint, contents: Contents, world: World, step: int | None = None, *,
                    config: ConfigSource = None, overrides: Overrides = None) -> int | None:
    """Does checkpoint.load_checkpoint. If that finds nothing but versions of another layout, or an older version than
    storage has, the version on storage is loaded. Collective. `config` and `overrides` are those of attach. Returns the
    step, None if nothing was saved. Raises LayoutError, with nothing changed, if that version lacks something or has it
    in another shape."""
    loaded, why = None, None
    try:
        loaded = checkpoint.load_checkpoint(step)
        if loaded is None or checkpoint.restored is None or not checkpoint.restored.passed_over:
            return loaded
    except (errors.LayoutError, errors.UnrecoverableError) as error:
        why = error
    published = _of_another_layout(contents, world, step, config, overrides)
    if published is None and why is not None:
        raise why
    if published is None:
        return loaded
    # After a failed load `restored` may still describe an earlier one.
    if loaded is not None and checkpoint.restored is not None and published.version <= checkpoint.restored.version:
        published.close()
        return loaded
    log.warning("step %d was saved in another layout: what is on storage is read for this number of ranks (%s)",
                published.step, why or f"the newest of this one is step {loaded}")
    with published:
        _check(published, contents, world)
        _read(published, contents, world.rank)
        return published.step


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
    own = {(record.key, tuple(record.offset), tuple(record.current().shape)) for record in contents.records}
    if published.info.world_size != world.size or not own <= pieces:
        return True
    return _is_dealt_out(published, contents, world.rank)


def _is_dealt_out(published: Published, contents: Contents, rank: int) -> bool:
    """Whether other ranks saved a part of what this one needs of a blob."""
    present = _blobs(published)
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
    keys = set(published.keys)
    yield from filter(None, (_fault(published, record, _source(record.key, rank, keys)) for record in
                             contents.records))
    blobs = _blobs(published)
    for blob in contents.blobs:
        try:
            _value(published, blob, rank, blobs)
        except errors.LayoutError as error:
            yield str(error)


def _fault(published: Published, record: Record, key: str | None) -> str | None:
    if key is None:
        return None
    if key not in published:
        return f"it has no {key}"
    shape, dtype = tuple(published.shape(key)), published.dtype(key)
    if shape != tuple(record.global_shape) or dtype != record.current().dtype:
        return (f"its {key} is {dtype} {shape}, here it is {record.current().dtype} "
                f"{tuple(record.global_shape)}")
    return None


def _read(published: Published, contents: Contents, rank: int) -> None:
    """What belonged to a single rank comes from the rank of the same number. If there was none, it comes from rank 0,
    except for random number generators, which stay as they are: no two ranks should draw the same numbers."""
    keys = set(published.keys)
    for record in contents.records:
        key = _source(record.key, rank, keys)
        if key is not None:
            published.read_box(key, record.offset, record.current().shape, out=record.current().detach())
    blobs = _blobs(published)
    for blob in contents.blobs:
        value = _value(published, blob, rank, blobs)
        if value is not None:
            blob.apply(value)
    contents.loaded()


def _blobs(published: Published) -> set[str]:
    return {entry.key for entry in published.entries if entry.blob}


def _value(published: Published, blob: Blob, rank: int, present: set[str]) -> Any:
    """The value of a blob for this rank, None if it has none. Raises LayoutError if it does not fit."""
    sources = _blob_sources(published, blob, rank, present)
    values = map(jsonstate.loads, filter(None, map(published.blob, sources)))
    value = next(values, None) if blob.choose is None else blob.choose(values)
    if value is not None:
        blob.fits(value)
    return value


def _blob_sources(published: Published, blob: Blob, rank: int, present: set[str]) -> list[str]:
    """The keys of the values to read: that of the rank of the same number and, for a blob that chooses, those of all
    others."""
    name = f"tierckpt.{blob.name}"
    own = _source(rank_key(rank, name), rank, present)
    if own is None:
        return []
    others = [] if blob.choose is None else [rank_key(other, name) for other in range(published.info.world_size)]
    sources = [key for key in dict.fromkeys((own, *others)) if key in present]
    if not sources:
        raise errors.LayoutError(f"it has no {own}")
    return sources


def _source(key: str, rank: int, present: set[str]) -> str | None:
    own = rank_key(rank, "")
    if key in present or not key.startswith(own):
        return key
    name = key.removeprefix(own)
    if name in ("rng.torch", "tierckpt.rng"):
        return None
    return next((other for other in (name, rank_key(0, name)) if other in present), key)
