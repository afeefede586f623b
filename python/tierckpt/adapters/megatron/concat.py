# SPDX-License-Identifier: Apache-2.0
"""A published version that other ranks have saved, for another number of data-parallel ranks.

Tensors are found by their names, and the pieces of the distributed optimizer by where they lie in the whole: both are
the same whatever the number of replicas. State that belongs to a single rank comes from one that had the same place in
the model. Generators belong to the ranks that saved them, so those of this run stay as they are.
"""

from collections.abc import Callable
from typing import Any

from ... import errors
from ...core.published import Published
from ...state import jsonstate
from ...state.blobs import Blob
from ...state.contents import Contents
from ...state.records import Record
from ...state.sharding import rank_key, split_rank

_GENERATORS = ("rng.torch", "rng", "rng_tracker")


def put(version: Published, contents: Contents, place: str) -> None:
    """Loads the version. `place` is the place of this rank among those that hold other parts of the model. Raises
    LayoutError, with nothing changed, if it was saved with other parallel sizes or another model."""
    donor = _donor(version, place)
    own = {split_rank(entry.key)[1]: index for index, entry in enumerate(version.entries)
           if not entry.blob and split_rank(entry.key)[0] is not None}
    whole = {key: (version.shape(key), version.dtype(key)) for key in version.keys}
    reads = [_read(version, record, whole, own) for record in contents.records
             if not record.key.endswith(f"/{_GENERATORS[0]}")]
    values = [(blob, _value(version, donor, blob)) for blob in contents.blobs if blob.name not in _GENERATORS]
    for read in reads:
        read()
    for blob, value in values:
        blob.apply(value)
    contents.loaded()


def _value(version: Published, rank: int, blob: Blob) -> Any:
    value = jsonstate.loads(version.blob(rank_key(rank, f"tierckpt.{blob.name}"), rank))
    blob.fits(value)
    return value


def _donor(version: Published, place: str) -> int:
    """The first of the ranks that saved it which had this place."""
    places = []
    for rank in range(version.info.world_size):
        saved = jsonstate.loads(version.blob(rank_key(rank, "tierckpt.progress"), rank))
        if saved["place"] == place:
            return rank
        places.append(saved["place"])
    raise errors.LayoutError(f"{version.info.path} was saved with other parallel sizes: it has {sorted(set(places))}, "
                             f"this rank is {place}. Only the number of data-parallel ranks may differ")


def _read(version: Published, record: Record, whole: dict[str, Any], own: dict[str, int]) -> Callable[[], object]:
    """A function that reads the contents of a record into its tensor. `whole` has shape and dtype of each tensor; `own`
    has the index of the entry of what single ranks have as their own."""
    rank, key = split_rank(record.key)
    tensor = record.current().detach()
    if rank is not None and key not in whole and key in own:
        return lambda: tensor.copy_(version.read_entry(own[key]))
    now = (tuple(record.global_shape), tensor.dtype)
    if whole.get(key) != now:
        raise errors.LayoutError(f"{key} is {whole.get(key, 'not')} in {version.info.path}, and {now} here: it was "
                                 "saved by another model")
    return lambda: version.read_box(key, record.offset, tensor.shape, out=tensor)
