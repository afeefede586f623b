# SPDX-License-Identifier: Apache-2.0
"""State other than tensors: small JSON values of this rank, taken at each save and put back after a restore."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from .. import errors
from ..runtime import native
from . import jsonstate
from .sharding import rank_key

Marks = dict[str, str]
"""Of each part of a value, by its name: the same text wherever the part is the same."""


@dataclass(frozen=True)
class Derivation:
    """How a rank that the saved training did not have makes its value out of that of another rank."""

    marks: Callable[[Any], Marks]
    make: Callable[[Any, int, Collection[str]], Any]  # from value, rank, and the parts that were alike on all ranks


@dataclass(frozen=True)
class Blob:
    """One such value: how to take it, and how to put it back."""

    name: str
    capture: Callable[[], object]
    apply: Callable[[Any], object]
    capacity: int | None = None  # bytes; None: with room to grow
    reshard: str = "refuse"  # with another number of ranks: also "leave" as it is, or "any": see lender
    fits: Callable[[Any], None] = lambda value: None  # raises LayoutError if apply could not put this value back
    choose: Callable[[Iterable[Any]], object] | None = None  # from the values that ranks of another layout have saved
    derivation: Derivation | None = None  # for "any"; None: another rank's value is taken as it is
    raw: bool = False  # captured as bytes of at most `capacity`, and never put back
    declaration: bool = False  # describes the layout for those that read versions; it is never put back
    structural: bool = False  # the capacity follows from what is trained, and not from the value or the user


def blob_key(rank: int, name: str) -> str:
    """The key of the blob of this name."""
    return name if name == native.METADATA_KEY else rank_key(rank, f"tierckpt.{name}")


def lender(rank: int, saved_world_size: int) -> int:
    """With another number of ranks, the rank whose data this one gets, where it may have those of any: that of its own
    number if it was there. The library does the same (TCK_RESHARD_ANY)."""
    return rank % saved_world_size


def alike(marks_of_ranks: Iterable[dict[str, Marks]]) -> dict[str, set[str]]:
    """By name of the blob, the parts that all ranks of a training had alike, from the marks of each. Of a single rank
    nothing is known."""
    first, *others = marks_of_ranks

    def everywhere(name: str, part: str) -> bool:
        return bool(others) and all(marks.get(name, {}).get(part) == first[name][part] for marks in others)

    return {name: {part for part in marks if everywhere(name, part)} for name, marks in first.items()}


def _room_for(size: int) -> int:
    """A capacity with room to grow. It is part of the layout, so it should be the same after a restart, when the value
    may have another size. Therefore capacities grow in large steps."""
    room = 64 * 1024
    while room < 4 * size:
        room *= 4
    return room


def _data(blob: Blob) -> bytes:
    value = blob.capture()
    return value if blob.raw and isinstance(value, bytes) else jsonstate.dumps(blob.name, value)


def _size(blob: Blob) -> int:
    """Of the present value; of a raw one, what it may become."""
    return blob.capacity or 0 if blob.raw else len(_data(blob))


def _wanted(blob: Blob) -> int:
    """The capacity for the present value."""
    size = _size(blob)
    return blob.capacity if blob.capacity is not None and blob.capacity >= size else _room_for(size)


class BlobTable:
    """The blobs of a registration, in the order in which they are put back."""

    def __init__(self, rank: int, blobs: list[Blob], capacity: dict[str, int] | None = None) -> None:
        """`capacity`: by name, instead of those that suit what the blobs hold now."""
        self._rank = rank
        self._blobs = blobs
        self._capacity = capacity or {blob.name: _wanted(blob) for blob in blobs}

    def _key(self, blob: Blob) -> str:
        return blob_key(self._rank, blob.name)

    def like(self, saved: dict[str, int]) -> "BlobTable | None":
        """The same blobs with the capacities of a version, which are given by key. None if the blobs of that version
        have another structure: its layout would still differ."""
        found = {blob.name: saved.get(self._key(blob)) for blob in self._blobs}
        if None in found.values() or any(found[blob.name] != self._capacity[blob.name] for blob in self._blobs
                                         if blob.structural):
            return None
        return BlobTable(self._rank, self._blobs, {name: room for name, room in found.items() if room is not None})

    def is_like(self, other: "BlobTable") -> bool:
        return self._capacity == other._capacity

    def with_room(self) -> "BlobTable":
        """The same blobs, with larger capacities for values that have grown or for which the user asks for more."""
        return BlobTable(self._rank, self._blobs,
                         {blob.name: self._enough(blob) for blob in self._blobs})

    def _enough(self, blob: Blob) -> int:
        size, now = _size(blob), self._capacity[blob.name]
        return now if now >= max(size, blob.capacity or 0) else _wanted(blob)

    def add_to(self, client: native.Client) -> None:
        for blob in self._blobs:
            client.add_blob(self._key(blob), self._capacity[blob.name])
            if blob.reshard != "refuse":
                client.set_reshard(self._key(blob), blob.reshard)

    def outgrown(self, name: str, size: int) -> str | None:
        """Why a value of this size cannot be saved; None if it can."""
        room = self._capacity[name]
        fits = size <= room
        return None if fits else f"the state of {name} has grown to {size} bytes, and {room} are reserved for it"

    def take(self, client: native.Client) -> None:
        """Takes the present state for the next snapshot. Raises NoSpaceError if a value has outgrown its capacity."""
        for blob in self._blobs:
            data = _data(blob)
            outgrown = self.outgrown(blob.name, len(data))
            if outgrown is not None:
                raise errors.NoSpaceError(f"{outgrown}: {errors.REFRESH}, which gives it more, or "
                                          f"init(capacity={{{blob.name!r}: bytes}})")
            client.set_blob(self._key(blob), data)

    def left_out(self) -> list[str]:
        """The names of the values that are not restored with another number of ranks."""
        return [blob.name for blob in self._restored() if blob.reshard == "leave"]

    def check(self, client: native.Client) -> None:
        """Checks the values of a restore before they are put back. Raises LayoutError if one does not fit."""
        for blob in self._restored():
            data = client.get_blob(self._key(blob))
            if data:
                self._check_one(blob, data)

    def _restored(self) -> list[Blob]:
        return [blob for blob in self._blobs if not blob.raw and not blob.declaration]

    def _check_one(self, blob: Blob, data: bytes) -> None:
        try:
            value = jsonstate.loads(data)
        except Exception as error:
            raise errors.LayoutError(f"what was saved as {blob.name} cannot be read by this version of Tierckpt: "
                                     f"{type(error).__name__}: {error}") from error
        blob.fits(value)

    def misfits(self, client: native.Client) -> dict[str, str]:
        """The same check for a load of whatever fits: why each value that does not fit does not."""
        found = {}
        for blob in self._restored():
            try:
                data = client.get_blob(self._key(blob))
                if data:
                    self._check_one(blob, data)
            except errors.LayoutError as error:
                found[blob.name] = str(error)
        return found

    def put_back(self, client: native.Client, left_out: Collection[str] = (),
                 change: Callable[[str, Any], Any] = lambda name, value: value, *,
                 lent: dict[str, set[str]] | None = None) -> list[str]:
        """Puts the values of a restore back, as `change` alters them, and returns the names of those that were put
        back. `lent` is what alike returns, if the values are another rank's because the saved training had no rank of
        this number; None: they are this rank's own."""
        names = []
        for blob in self._restored():
            data = b"" if blob.name in left_out else client.get_blob(self._key(blob))
            if data:
                value = change(blob.name, jsonstate.loads(data))
                if lent is not None and blob.derivation is not None:
                    value = blob.derivation.make(value, self._rank, lent.get(blob.name, ()))
                blob.apply(value)
                names.append(blob.name)
        return names

    def marks(self, client: native.Client) -> dict[str, Marks]:
        """Of the values of a restore that a new rank would derive."""
        return {blob.name: blob.derivation.marks(jsonstate.loads(client.get_blob(self._key(blob))))
                for blob in self._blobs if blob.derivation is not None and client.get_blob(self._key(blob))}
