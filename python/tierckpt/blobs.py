# SPDX-License-Identifier: Apache-2.0
"""State that is not tensors: small JSON values of this rank, taken at each save and put back after a restore."""

from collections.abc import Callable
from dataclasses import dataclass

from . import _native, errors, jsonstate
from .placer import rank_key


@dataclass(frozen=True)
class Blob:
    name: str
    capture: Callable[[], object]
    apply: Callable[[object], None]
    capacity: int | None = None  # bytes; None: with room to grow
    reshard: str = "refuse"  # into another number of ranks: also "leave" as it is, "any" old rank's


def _room_for(size: int) -> int:
    """Room to grow, and the same after a restart, when the value may have another size: the capacity is a part of the
    layout. Hence steps that are wide apart."""
    room = 64 * 1024
    while room < 4 * size:
        room *= 4
    return room


class BlobTable:
    """Blobs in the order in which they are put back."""

    def __init__(self, rank: int, blobs: list[Blob]):
        self._rank = rank
        self._blobs = blobs
        self._capacity = {}
        for blob in blobs:
            size = len(jsonstate.dumps(blob.name, blob.capture()))
            self._capacity[blob.name] = _room_for(size) if blob.capacity is None else blob.capacity

    def _key(self, blob: Blob) -> str:
        return rank_key(self._rank, f"tierckpt.{blob.name}")

    def add_to(self, client: _native.Client):
        for blob in self._blobs:
            client.add_blob(self._key(blob), self._capacity[blob.name])
            if blob.reshard != "refuse":
                client.set_reshard(self._key(blob), blob.reshard)

    def take(self, client: _native.Client):
        """Takes the state as it is now for the next snapshot."""
        for blob in self._blobs:
            data = jsonstate.dumps(blob.name, blob.capture())
            if len(data) > self._capacity[blob.name]:
                raise errors.NoSpace(f"the state of {blob.name} has grown to {len(data)} bytes, and "
                                     f"{self._capacity[blob.name]} were reserved at init: raise them with "
                                     f"init(capacity={{{blob.name!r}: bytes}})")
            client.set_blob(self._key(blob), data)

    def left_out(self) -> list[str]:
        """The names of those that another number of ranks does not get back."""
        return [blob.name for blob in self._blobs if blob.reshard == "leave"]

    def put_back(self, client: _native.Client, left_out=()):
        for blob in self._blobs:
            if blob.name in left_out:
                continue
            data = client.get_blob(self._key(blob))
            if data:
                blob.apply(jsonstate.loads(data))
