# SPDX-License-Identifier: Apache-2.0
"""A published version that other ranks have saved, for other parallel sizes (layouts.py), or, if it or this rank has no
description of the model, for another number of data-parallel ranks.

For the latter, tensors are found by their names, and the pieces of the distributed optimizer by where they lie in the
whole: both are the same whatever the number of replicas. State that belongs to a single rank comes from one that had
the same place in the model: generators from the one with the same number among these, if there was one. The library
cannot do this, since a rank's place does not follow from its number, and another rank than before may own a piece.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ... import errors
from ...core.published import Published
from ...runtime.world import World
from ...state import jsonstate
from ...state.blobs import Blob, lender
from ...state.contents import Contents
from ...state.records import Record, pieces_of, saved_dtype, saved_shape
from ...state.sharding import rank_key, split_rank
from . import description, layouts
from .description import Description, Here, Saved

log = logging.getLogger("tierckpt")

_GENERATOR = "rng.torch"
_GENERATORS = (_GENERATOR, "rng", "rng_tracker")


def here_of(place: str, description: Description, world: World, replicas_draw_alike: bool) -> Here:
    """This rank. Collective."""
    same = [rank for rank, other in enumerate(world.gather(place)) if other == place]
    return Here(place, description, same.index(world.rank), replicas_draw_alike)


def put(version: Published, contents: Contents, here: Here, world: World) -> None:
    """Loads the version. Collective. Raises LayoutError on every rank, with nothing changed, if it was saved by another
    model, or with other parallel sizes and without a description of the model."""
    places, descriptions = _read_places(version, world)
    lacks = next(filter(None, world.gather(here.description.lacks)), None)
    lacks = lacks or next((one.lacks for one in descriptions.values() if one.lacks is not None), None)
    if lacks is None:
        layouts.put(version, contents, Saved(places, descriptions), here, world)
    else:
        _put_same_sizes(version, contents, here, world, places, lacks)


def _put_same_sizes(version: Published, contents: Contents, here: Here, world: World, saved: dict[int, str],
                    lacks: str) -> None:
    reads, values = world.agreed(lambda: _plan(version, contents, here, _donors(version, saved, here.place, lacks)))
    is_new = here.number >= sum(other == here.place for other in saved.values())
    for read in reads:
        read()
    for blob, value in values:
        if blob.derivation is not None and is_new and not here.replicas_draw_alike:
            log.warning("%s of rank %d, which is new, is derived from that of a rank that was there", blob.name,
                        world.rank)
            value = blob.derivation.make(value, world.rank, ())
        blob.apply(value)
    contents.loaded()


_Plan = tuple[list[Callable[[], object]], list[tuple[Blob, Any]]]


def _plan(version: Published, contents: Contents, here: Here, donors: list[int]) -> _Plan:
    """Functions that read the tensors, and the values of the blobs."""
    drawer = donors[lender(here.number, len(donors))]
    own = {split_rank(entry.key)[1]: index for index, entry in enumerate(version.entries)
           if not entry.blob and split_rank(entry.key)[0] is not None}
    own[_GENERATOR] = _index(version, rank_key(drawer, _GENERATOR))
    whole = {key: (version.shape(key), version.dtype(key)) for key in version.keys}
    reads = [_read(version, record, tensor.detach(), whole, own)
             for record, tensor in zip(contents.records, pieces_of(contents.records), strict=True)]
    return reads, [(blob, _value(version, drawer if blob.name in _GENERATORS else donors[0], blob))
                   for blob in contents.blobs if not blob.declaration]


def _value(version: Published, rank: int, blob: Blob) -> Any:
    value = jsonstate.loads(version.blob(rank_key(rank, f"tierckpt.{blob.name}"), rank))
    blob.fits(value)
    return value


def _index(version: Published, key: str) -> int:
    return next(index for index, entry in enumerate(version.entries) if entry.key == key)


def _donors(version: Published, saved: dict[int, str], place: str, lacks: str) -> list[int]:
    """The ranks that saved it which had this place, in their order."""
    donors = sorted(rank for rank, other in saved.items() if other == place)
    if not donors:
        raise errors.LayoutError(f"{version.info.path} was saved with other parallel sizes: it has "
                                 f"{sorted(set(saved.values()))}, this rank is {place}. Only the number of "
                                 f"data-parallel ranks may differ here: {lacks}")
    return donors


_NO_DESCRIPTION = Description({}, {}, {}, "the version has no description of the model, as it was saved by an earlier "
                              "version of Tierckpt")


def _read_places(version: Published, world: World) -> tuple[dict[int, str], dict[str, Description]]:
    """The places of the ranks that saved it, and what those had of the model. Each rank looks at a part of them.
    Collective."""
    mine = range(world.rank, version.info.world_size, world.size)
    parts = world.gather(world.agreed(lambda: _progress(version, mine)))
    places = {rank: place for part, _ in parts for rank, place in part.items()}
    texts = {place: text for _, part in parts for place, text in part.items()}
    described = {place: _NO_DESCRIPTION if texts[place] is None else description.from_text(texts[place])
                 for _, place in sorted(places.items())}
    return places, described


def _progress(version: Published, ranks: Iterable[int]) -> tuple[dict[int, str], dict[str, str | None]]:
    places, texts = {}, {}
    for rank in ranks:
        saved = jsonstate.loads(version.blob(rank_key(rank, "tierckpt.progress"), rank))
        places[rank] = saved["place"]
        texts[saved["place"]] = saved.get("parts")
    return places, texts


def _read(version: Published, record: Record, tensor: torch.Tensor, whole: dict[str, Any],
          own: dict[str, int]) -> Callable[[], object]:
    """A function that reads the contents of a record into its tensor. `whole` has shape and dtype of each tensor; `own`
    has the index of the entry of what single ranks have as their own."""
    rank, key = split_rank(record.key)
    now = (tuple(record.global_shape), saved_dtype(tensor))
    found = whole.get(key)
    if rank is not None and found is None and key in own:
        saved = version.entries[own[key]]
        found = whole[saved.key]
    if found != now:
        raise errors.LayoutError(f"{key} is {found or 'not'} in {version.info.path}, and {now} here: it was saved by "
                                 "another model")
    if key not in whole:
        return lambda: version.read_entry(own[key], out=tensor)
    return lambda: version.read_box(key, record.offset, tuple(saved_shape(tensor)), out=tensor)
