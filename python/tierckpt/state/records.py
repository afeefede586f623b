# SPDX-License-Identifier: Apache-2.0
"""Pieces of tensors as the library knows them, and the table that keeps their addresses up to date."""

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .. import errors
from ..runtime import native

_DTYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
    torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}

AS_PAIRS = {torch.complex128: torch.float64, torch.complex32: torch.float16}
_AS_BYTES = {getattr(torch, name) for name in ("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu",
                                               "float4_e2m1fn_x2") if hasattr(torch, name)}

TORCH_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}


@dataclass(frozen=True)
class Record:
    """One piece of a tensor that this rank holds."""

    key: str
    find: Callable[[], torch.Tensor]  # the present tensor, maybe a DTensor; training may replace it by another
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    group: str | None  # the ranks that hold the same bytes; None: this rank alone
    eager: bool  # may change before the next optimizer step
    look: Callable[[], None] | None = None  # to be called before find; one call does for all records that share it
    head: bytes = b""  # what files have right before the piece, for readers of another format
    reshard: str = "refuse"  # what happens to a rank's own record with another number of ranks: also "leave", "any"

    def current(self) -> torch.Tensor:
        """This rank's piece as it is now."""
        if self.look is not None:
            self.look()
        return local_of(self.find())


def look_at(records: Iterable[Record]) -> None:
    """Makes `find` of all these records return what there is now. A look takes time for everything that the model or
    the optimizer has, so one for each record would take the square of that."""
    for look in dict.fromkeys(record.look for record in records if record.look is not None):
        look()


def pieces_of(records: list[Record]) -> list[torch.Tensor]:
    """`current` of each record."""
    look_at(records)
    return [local_of(record.find()) for record in records]


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """The piece of this rank, without a copy."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def carried(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory with a dtype that files can have: complex numbers as pairs, dtypes without a name in files as
    bytes."""
    if tensor.dtype in AS_PAIRS:
        return torch.view_as_real(tensor.resolve_conj())
    if tensor.dtype in _AS_BYTES:
        return tensor.view(torch.uint8)
    return tensor


def saved_shape(tensor: torch.Tensor) -> torch.Size:
    """The shape of the tensor in files."""
    return torch.Size((*tensor.shape, 2)) if tensor.dtype in AS_PAIRS else tensor.shape


def saved_dtype(tensor: torch.Tensor) -> torch.dtype:
    """The dtype of the tensor in files."""
    return torch.uint8 if tensor.dtype in _AS_BYTES else AS_PAIRS.get(tensor.dtype, tensor.dtype)


def fixed(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    """For Record.find, if the training never replaces this tensor by another."""
    return lambda: tensor


def whole(key: str, find: Callable[[], torch.Tensor], group: str | None, eager: bool,
          look: Callable[[], None] | None = None) -> Record:
    """The record of a tensor that this rank holds as a whole."""
    shape = tuple(saved_shape(local_of(find())))
    return Record(key, find, shape, (0,) * len(shape), group, eager, look)


def dtype_name(dtype: torch.dtype) -> str:
    """The name of a dtype in files. Raises KeyError if files cannot have it."""
    return _DTYPES[dtype]


def _is_freed(tensor: torch.Tensor) -> bool:
    """Whether the storage that the tensor is a view of was given back (resize_), as FSDP does with gathered parameters:
    then its address means nothing."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (tensor.storage_offset() + last + 1) * tensor.element_size() > tensor.untyped_storage().nbytes()


def check_tensor(key: str, tensor: torch.Tensor) -> None:
    """Raises UnsupportedError unless the tensor can be saved. The error says in one line what to do."""
    if tensor.is_meta:
        raise errors.UnsupportedError(
            f"{key} is on the meta device and has no values yet: allocate and initialise the model before "
            "init, e.g. with model.to_empty(device=...)")
    if tensor.is_quantized:
        raise errors.UnsupportedError(f"{key} is a quantized tensor ({tensor.dtype}), which cannot be saved: keep its "
                                      "int_repr() and scales as plain tensors, or save it before it is quantized")
    if tensor.layout != torch.strided:
        raise errors.UnsupportedError(f"{key} has layout {tensor.layout}, and only dense tensors can be saved: use "
                                      "tensor.to_dense(), or keep its indices and values as two tensors")
    if tensor.device.type not in ("cpu", "cuda"):
        raise errors.UnsupportedError(
            f"{key} is on {tensor.device}: only tensors on the CPU or a CUDA device can be saved, "
            "so move it there before init")
    if tensor.numel() > 0 and tensor.data_ptr() == 0:
        raise errors.UnsupportedError(f"{key} is a {type(tensor).__name__} that has no memory of its own, as a class "
                                      "of tensors that consist of others has none: register those others, or save it "
                                      "before it is converted to this class")
    if tensor.numel() > 0 and _is_freed(tensor):
        raise errors.UnsupportedError(f"{key} is a view of memory that was freed, as FSDP frees the parameters that it "
                                      "has gathered: save a copy of it, made while they are there (clone())")
    if tensor.dtype not in _DTYPES and tensor.dtype not in AS_PAIRS and tensor.dtype not in _AS_BYTES:
        raise errors.UnsupportedError(f"{key} has dtype {tensor.dtype}, which cannot be saved: convert it before init")
    if len(saved_shape(tensor)) > native.MAX_NDIM:
        raise errors.UnsupportedError(
            f"{key} has {tensor.dim()} dimensions, and at most {native.MAX_NDIM} can be saved: "
            "register it with some of them flattened")


def _cuda_device(tensor: torch.Tensor) -> int | None:
    """The number of its CUDA device."""
    return tensor.device.index if tensor.device.type == "cuda" else None


class _Row:
    """A record after its registration. It keeps alive the memory that the library copies from: the tensor's own, or, if
    the tensor is not in C order or may change during the copy, a staging copy that is filled in each save."""

    def __init__(self, record: Record, found: torch.Tensor) -> None:
        self.record = record
        self.number: int | None = None
        self.form = _form(found)
        self._staging: torch.Tensor | None = None
        self.unsteady = local_of(found).is_inference()  # whether it has changed during a copy, or might unnoticed
        self.follow(local_of(found))

    def follow(self, tensor: torch.Tensor) -> None:
        """The tensor that the record has now."""
        # An alias: the tensor itself may be given other memory (tensor.data = ...), which would free this one.
        self.tensor = tensor.detach()
        if not self.unsteady and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg():
            self._staging = None
        elif self._staging is None:
            self._staging = torch.empty(saved_shape(tensor), dtype=saved_dtype(tensor), device=tensor.device)

    @property
    def is_staged(self) -> bool:
        return self._staging is not None

    @property
    def address(self) -> int:
        return (self.tensor if self._staging is None else self._staging).data_ptr()

    def fill(self) -> None:
        """Fills the staging copy, if there is one, before a save."""
        if self._staging is not None:
            with torch.no_grad():
                self._staging.copy_(carried(self.tensor))

    def pour(self) -> None:
        """Copies the staging copy, if there is one, into the tensor, after a restore."""
        if self._staging is not None:
            pour(self._staging, self.tensor)


def pour(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> None:
    """Copies a tensor in the form that files have into a tensor. non_blocking: as for Tensor.copy_."""
    if target.dtype in AS_PAIRS:
        source = torch.view_as_complex(source)
    elif target.dtype in _AS_BYTES:
        source = source.view(target.dtype)
    for dim, stride in enumerate(target.stride()):
        if stride == 0 and target.shape[dim] > 1:  # expanded: all elements share one number in memory
            source, target = source.narrow(dim, 0, 1), target.narrow(dim, 0, 1)
    with torch.no_grad():
        target.copy_(source, non_blocking=non_blocking)


def _form(tensor: torch.Tensor) -> tuple[Any, ...]:
    """What must not change without a new registration: dtype, shape, device and sharding."""
    local = local_of(tensor)
    return local.dtype, tuple(local.shape), local.device, _sharding(tensor)


def _sharding(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """The place of this rank's piece in the whole tensor. Not the mesh itself: in torch 2.13 two equal meshes that were
    made in different threads do not compare equal."""
    if not isinstance(tensor, DTensor):
        return None
    mesh = tensor.device_mesh
    coordinate = mesh.get_coordinate()
    return tuple(mesh.shape), coordinate and tuple(coordinate), tensor.placements, tuple(tensor.shape)


def _alike(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    """A plain tensor of the same local shape may stand for the piece of a DTensor: DCP loads into such tensors."""
    return before[:3] == now[:3] and (before[3] == now[3] or before[3] is None or now[3] is None)


def _difference(before: tuple[Any, ...], now: tuple[Any, ...]) -> str:
    if before[2] != now[2]:
        return f"was registered on {before[2]} and is now on {now[2]}"
    if before[:2] == now[:2]:
        return "was registered with another sharding than it has now"
    return f"was registered as {before[0]} {before[1]} and is now {now[0]} {now[1]}"


def _seen(found: list[torch.Tensor], tensors: list[torch.Tensor]) -> tuple[Any, ...]:
    """Detects whether any of many tensors has moved or changed. Each save needs this for all tensors, so it has to be
    fast. Another tensor in the same memory may have a version counter of its own, so identities count, too."""
    return (list(map(id, found)), list(map(torch.Tensor.data_ptr, tensors)), list(map(torch.Tensor.size, tensors)),
            list(map(operator.attrgetter("dtype"), tensors)), list(map(torch.Tensor.stride, tensors)))


_version = operator.attrgetter("_version")


class Versions:
    """Detects, by the version counters of tensors, that something writes to them during a copy. It refers to nothing
    but the tensors, so it can still be asked while the rest of a checkpoint is being freed."""

    def __init__(self) -> None:
        self._tensors: list[torch.Tensor] = []
        self._keys: list[str] = []
        self._before: list[int] = []
        self.unsteady: set[str] = set()
        """Keys of the tensors that have ever been written to during a copy."""

    def watch(self, keys: list[str], tensors: list[torch.Tensor]) -> None:
        self._keys, self._tensors = keys, tensors

    def note(self) -> None:
        """Called right before a copy begins."""
        self._before = list(map(_version, self._tensors))

    def changed(self) -> list[str]:
        """The keys of the tensors that were written to since then."""
        now = list(map(_version, self._tensors))
        if now == self._before:
            return []
        keys = [key for key, before, after in zip(self._keys, self._before, now, strict=True) if before != after]
        self.unsteady.update(keys)
        return list(dict.fromkeys(keys))


class RecordTable:
    """The records of a registration."""

    def __init__(self, records: list[Record]) -> None:
        for record, tensor in zip(records, pieces_of(records), strict=True):
            check_tensor(record.key, tensor)
        self._looks = list(dict.fromkeys(record.look for record in records if record.look is not None))
        self._finds = [record.find for record in records]
        self._rows = [_Row(record, record.find()) for record in records]
        self._seen: tuple[Any, ...] | None = None
        self._alive: object = None  # keeps what `_seen` has the ids of, so that nothing newer can have one of them
        self.versions = Versions()
        self._unsteady: set[str] = set()  # which of them have a staging copy by now
        devices = map(_cuda_device, (row.tensor for row in self._rows))
        self._cuda_devices = sorted({device for device in devices if device is not None})

    def keys(self) -> list[str]:
        return [row.record.key for row in self._rows]

    def add_to(self, client: native.Client) -> None:
        for row in self._rows:
            record = row.record
            row.number = client.add_record(
                key=record.key, dtype=_DTYPES[saved_dtype(row.tensor)], global_shape=record.global_shape,
                offset=record.offset, local_shape=saved_shape(row.tensor), address=row.address, group=record.group,
                when=native.EAGER if record.eager else native.LAZY, cuda_device=_cuda_device(row.tensor),
                **({"head": record.head} if record.head else {}))
            if record.reshard != "refuse":
                client.set_reshard(record.key, record.reshard)

    def place(self, client: native.Client, index: int) -> native.Place:
        """Where the record of this index lies in published versions, after client.register."""
        number = self._rows[index].number
        if number is None:
            raise errors.InvalidArgumentError("the records are not registered yet")
        return client.record_place(number)

    @property
    def on_devices(self) -> bool:
        return bool(self._cuda_devices)

    def tell_streams(self, client: native.Client) -> None:
        """Tells the library on which stream work changes the records: on each device the calling thread's current
        stream."""
        for device in self._cuda_devices:
            client.set_stream(device, torch.cuda.current_stream(device).cuda_stream)

    def refuse_capture(self) -> None:
        """Raises InvalidArgumentError during the capture of a CUDA graph. The library would, too, but other calls that
        a save makes to torch, for the state of the generators for example, fail there with errors of their own, or
        invalidate the graph."""
        for device in self._cuda_devices:
            with torch.cuda.device(device):
                if torch.cuda.is_current_stream_capturing():
                    raise errors.InvalidArgumentError(
                        f"the current stream of CUDA device {device} is being captured into a "
                        "graph: saves belong outside of it")

    def refresh(self, client: native.Client) -> None:
        """Tells the library about tensors that have moved, before a save or a load. No copy may be under way: call
        fence before. Raises LayoutError, with nothing changed, if a tensor is not what was registered."""
        for look in self._looks:
            look()
        found = [find() for find in self._finds]
        tensors = found
        if any(issubclass(kind, DTensor) for kind in set(map(type, found))):
            tensors = list(map(local_of, found))
        seen = _seen(found, tensors)
        if seen != self._seen or self._unsteady != self.versions.unsteady:
            self._follow(client, found, tensors)
            self._seen, self._alive = seen, found

    def _follow(self, client: native.Client, found: list[torch.Tensor], tensors: list[torch.Tensor]) -> None:
        for row, tensor in zip(self._rows, found, strict=True):
            form = _form(tensor)
            if not _alike(row.form, form):
                raise errors.LayoutError(f"{row.record.key} {_difference(row.form, form)}: {errors.REFRESH}")
            check_tensor(row.record.key, local_of(tensor))
        self._unsteady = set(self.versions.unsteady)
        for row, tensor in zip(self._rows, tensors, strict=True):
            row.unsteady = row.unsteady or row.record.key in self._unsteady
            self._move(client, row, tensor)
        watched = [(row.record.key, row.tensor) for row in self._rows if not row.record.eager and not row.is_staged]
        watched += [(row.record.key, tensor) for row, tensor in zip(self._rows, found, strict=True)
                    if isinstance(tensor, DTensor) and not row.record.eager and not row.is_staged]  # it counts apart
        self.versions.watch([key for key, _ in watched], [tensor for _, tensor in watched])

    def _move(self, client: native.Client, row: _Row, tensor: torch.Tensor) -> None:
        before = row.address
        row.follow(tensor)
        if row.address != before and row.number is not None:
            client.set_address(row.number, row.address)

    # ---- tensors that have a staging copy

    def fill(self) -> None:
        """Before a save."""
        for row in self._rows:
            row.fill()

    def pour(self) -> None:
        """After a restore."""
        for row in self._rows:
            row.pour()
