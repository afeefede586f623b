# SPDX-License-Identifier: Apache-2.0
"""What torch.distributed.checkpoint needs to open a published version by itself: `storage_format` dcp.

Its FileSystemReader finds each tensor by .metadata as a range of a file, which torch.load must be able to read. In the
older one of the two formats of torch.save, everything but the numbers themselves comes first. So a head right before a
record makes both one such range, while the file stays what it is. Other values have a blob of their own in that format.
"""

import functools
import io
import math
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.serialization import MAGIC_NUMBER, PROTOCOL_VERSION

from .. import errors
from ..runtime import native
from ..runtime.world import World
from .blobs import Blob, blob_key
from .contents import Contents
from .records import Record, RecordTable

FORMAT = "dcp"
"""The value of the key storage_format."""

_VALUES = "dcp_values"  # name of the blob with the values that are no tensors
_LENGTH_BYTES = 8  # before the content of a blob
_LEAST_ROOM = 512
_LEAST_TO_GROW = 64 * 1024
_PLAIN = {int, float, bool, type(None), str}
_MAY_GROW = (bytes, bytearray, list, dict, io.BytesIO)
_WIDEST = 2**62
_PICKLE = 2  # the protocol that torch.save uses
_SYSTEM = {"protocol_version": PROTOCOL_VERSION, "little_endian": True,
           "type_sizes": {"short": 2, "int": 4, "long": 4}}

# ---- in the format of torch.save


class _Numbers:
    """Stands for the memory of a tensor while the tensor is pickled."""


class _Described:
    """Is pickled like a tensor of this dtype and shape."""

    def __init__(self, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        self._dtype, self._shape = dtype, shape

    def __reduce__(self) -> tuple[Any, ...]:
        strides = [math.prod(self._shape[i + 1:]) for i in range(len(self._shape))]
        return torch._utils._rebuild_tensor_v3, (_Numbers(), 0, self._shape, tuple(strides), False, OrderedDict(),
                                                 self._dtype)


class _Pickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, size: int) -> None:
        super().__init__(file, protocol=_PICKLE)
        self._size = size

    def persistent_id(self, value: Any) -> Any:
        """The memory counts as bytes whatever the dtype: torch.load has no memory for some of them in this format."""
        return ("storage", torch.ByteStorage, "0", "cpu", self._size, None) if isinstance(value, _Numbers) else None


def tensor_head(dtype: torch.dtype, shape: tuple[int, ...]) -> bytes:
    """What torch.save writes before the numbers of a contiguous tensor."""
    size = math.prod(shape) * dtype.itemsize
    file = io.BytesIO()
    for value in (MAGIC_NUMBER, PROTOCOL_VERSION, _SYSTEM):
        pickle.dump(value, file, protocol=_PICKLE)
    _Pickler(file, size).dump(_Described(dtype, shape))
    pickle.dump(["0"], file, protocol=_PICKLE)
    file.write(struct.pack("<q", size))
    return file.getvalue()


def value_bytes(value: Any) -> bytes:
    """A value as torch.save writes it. torch.load ignores what follows."""
    if type(value) in _PLAIN or (type(value) is tuple and {*map(type, value)} <= _PLAIN):
        return _plain_bytes(pickle.dumps(value, protocol=_PICKLE))
    return _written(value)


@functools.lru_cache(maxsize=4096)
def _plain_bytes(pickled: bytes) -> bytes:
    """Of a plain value. State dicts of optimizers repeat a few of them for each parameter, and torch.save is slow."""
    return _written(pickle.loads(pickled))


def _written(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False)
    return file.getvalue()


# ---- .metadata


@dataclass(frozen=True)
class Piece:
    """What a rank holds of a tensor of a state dict. In files it is a record of this rank."""

    key: str
    """In the flattened state dict."""
    record: int
    """The index of the record."""
    dtype: torch.dtype
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    shape: tuple[int, ...]


class _Range(NamedTuple):
    """Where something lies in the files of a version."""

    file: str
    offset: int
    bytes: int


@dataclass(frozen=True)
class _OfRank:
    """What a rank has in its state dict."""

    pieces: list[Piece]
    values: list[str]
    paths: dict[str, tuple[Any, ...]]


@dataclass(frozen=True)
class _Found:
    """What a rank has in files: of replicas, only one rank has any."""

    tensors: list[tuple[Piece, _Range]]
    values: list[tuple[str, _Range]]


def piece_of(key: str, index: int, record: Record, tensor: torch.Tensor) -> Piece:
    """`tensor` is the present one of the record. In files some dtypes have one dimension more than the tensor."""
    dims = tensor.dim()
    return Piece(key, index, tensor.dtype, record.global_shape[:dims], record.offset[:dims], tuple(tensor.shape))


def _metadata(found: Iterable[_Found], paths: dict[str, tuple[Any, ...]]) -> bytes:
    table: dict[str, TensorStorageMetadata | BytesStorageMetadata] = {}
    where: dict[MetadataIndex, _StorageInfo] = {}
    names: dict[str, str] = {}  # one object for each name, which pickle then writes once
    chunks: dict[str, list[ChunkStorageMetadata]] = {}
    for of_rank in found:
        for piece, (file, offset, size) in of_rank.tensors:
            place = torch.Size(piece.offset)
            chunks.setdefault(piece.key, []).append(ChunkStorageMetadata(place, torch.Size(piece.shape)))
            table[piece.key] = TensorStorageMetadata(TensorProperties(dtype=piece.dtype),
                                                     torch.Size(piece.global_shape), chunks[piece.key])
            where[MetadataIndex(piece.key, place)] = _StorageInfo(names.setdefault(file, file), offset, size)
        for key, (file, offset, size) in of_rank.values:
            table[key] = BytesStorageMetadata()
            where[MetadataIndex(key)] = _StorageInfo(names.setdefault(file, file), offset, size)
    return pickle.dumps(Metadata(table, planner_data={key: paths.get(key, (key,)) for key in table},
                                 storage_data=where))


class DcpFiles:
    """Of a state dict whose tensors are among these records. Collective over `world`.

    pieces   this rank's tensors: replicas too, but not what a rank has beside another one's under the same key
    values   the values that are no tensors, by key, as they are now. The lowest rank that has one saves it
    paths    of each key, where it is in the nested state dict"""

    def __init__(self, world: World, records: list[Record], pieces: list[Piece], values: Callable[[], dict[str, Any]],
                 paths: dict[str, tuple[Any, ...]]) -> None:
        self._world, self._values = world, values
        heads = {piece.record: tensor_head(piece.dtype, piece.shape) for piece in pieces}
        self._records = [replace(record, head=heads.get(i, b"")) for i, record in enumerate(records)]
        first = values()
        ranks: list[_OfRank] = world.gather(_OfRank(pieces, list(first), paths))
        lowest_first = list(enumerate(ranks))
        owner = {key: rank for rank, of_rank in reversed(lowest_first) for key in of_rank.values}
        of_piece = {(piece.key, piece.offset): rank for rank, of_rank in reversed(lowest_first)
                    for piece in of_rank.pieces}
        self._paths = {key: path for _, of_rank in reversed(lowest_first) for key, path in of_rank.paths.items()}
        self._pieces = [piece for piece in pieces if of_piece[piece.key, piece.offset] == world.rank]
        mine = {key: value for key, value in first.items() if owner[key] == world.rank}
        self._wanted = world.agreed(lambda: self._wanted_rooms(mine), "nothing is registered")
        self._rooms = self._wanted
        self._metadata_room = len(self._described(self._widest()))
        self._metadata = b""

    def _wanted_rooms(self, values: dict[str, Any]) -> dict[str, int]:
        rooms = {}
        for key, data in self._as_bytes(values).items():
            try:
                torch.load(io.BytesIO(data), map_location="cpu", weights_only=False)
            except Exception as error:
                raise errors.UnsupportedError(f"{key} has something that torch.load cannot read in the form of "
                                              "storage_format dcp, such as a tensor of unsigned numbers: "
                                              f"{error}") from error
            rooms[key] = _room_for(values[key], len(data))
        return rooms

    @staticmethod
    def _as_bytes(values: dict[str, Any]) -> dict[str, bytes]:
        found = {}
        for key, value in values.items():
            try:
                found[key] = value_bytes(value)
            except Exception as error:
                raise errors.UnsupportedError(f"{key} is a {type(value).__name__}, which torch.save cannot write: "
                                              f"{error}") from error
        return found

    def added_to(self, contents: Contents) -> Contents:
        """The same contents, whose records are those that this was made for, as a checkpoint of DCP too."""
        return replace(contents, records=self._records, blobs=[*contents.blobs, *self._blobs()],
                       registered=self._registered, storage_format=FORMAT)

    def _blobs(self) -> list[Blob]:
        found = []
        if self._wanted:
            found.append(Blob(_VALUES, self._packed, _ignore, sum(self._wanted.values()), "leave", raw=True))
        if self._world.rank == 0:
            found.append(Blob(native.METADATA_KEY, lambda: self._metadata, _ignore, self._metadata_room, "leave",
                              raw=True))
        return found

    # ---- values

    def _packed(self) -> bytes:
        """Each value in its own room, in which it may grow: .metadata says where the rooms are, once for a layout."""
        now = self._values()
        found = self._as_bytes({key: now.get(key) for key in self._rooms})
        outgrown = self._outgrown(found)
        if outgrown is not None:
            raise errors.LayoutError(f"{outgrown}: close this and attach again, which gives it more")
        return b"".join(data.ljust(self._rooms[key], b"\0") for key, data in found.items())

    def outgrown(self, values: dict[str, Any]) -> str | None:
        """Why these values can only be saved after another registration; None if they can be saved now."""
        return self._outgrown(self._as_bytes({key: values.get(key) for key in self._rooms}))

    def _outgrown(self, found: dict[str, bytes]) -> str | None:
        for key, data in found.items():
            if len(data) > self._rooms[key]:
                return f"{key} has grown to {len(data)} bytes, and {self._rooms[key]} are reserved for it"
        return None

    # ---- .metadata

    def _registered(self, client: native.Client, table: RecordTable) -> None:
        """Describes the files of the layout that was registered. Collective."""
        self._metadata = self._described(self._world.agreed(lambda: self._found(client, table), "nothing is saved"))

    def _described(self, found: _Found) -> bytes:
        everywhere = self._world.gather(found)
        return _metadata(everywhere, self._paths) if self._world.rank == 0 else b""

    def _widest(self) -> _Found:
        """What takes as much room in .metadata as anything that the layout may turn out to be."""
        def somewhere(group: str | None) -> _Range:
            return _Range((group or f"rank {self._world.rank}").ljust(native.MAX_FILE), _WIDEST, _WIDEST)

        return _Found([(piece, somewhere(self._records[piece.record].group)) for piece in self._pieces],
                      [(key, somewhere(None)) for key in self._wanted])

    def _found(self, client: native.Client, table: RecordTable) -> _Found:
        tensors = []
        for piece in self._pieces:
            place, head = table.place(client, piece.record), len(self._records[piece.record].head)
            tensors.append((piece, _Range(place.file, place.offset - head, place.bytes + head)))
        if not self._wanted:
            return _Found(tensors, [])
        place = client.blob_place(blob_key(self._world.rank, _VALUES))
        at, room, wanted = place.offset + _LENGTH_BYTES, place.bytes - _LENGTH_BYTES, sum(self._wanted.values())
        # A load may have taken over the size that the whole had in the version that it loads.
        self._rooms = {key: size * room // wanted for key, size in self._wanted.items()}
        values = []
        for key, size in self._rooms.items():
            values.append((key, _Range(place.file, at, size)))
            at += size
        return _Found(tensors, values)


def _ignore(_value: Any) -> None:
    """Nothing is put back: these are other forms of what other blobs and records have."""


def _room_for(value: Any, size: int) -> int:
    """It is part of the layout, so it should be the same after a restart, when the value may have another size."""
    room = _LEAST_TO_GROW if isinstance(value, _MAY_GROW) else _LEAST_ROOM
    while room < 2 * size:
        room *= 4
    return room
