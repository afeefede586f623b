# SPDX-License-Identifier: Apache-2.0
"""Tensor pieces as the library knows them, and the table that keeps their addresses up to date."""

import operator
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.distributed.tensor import DTensor

from . import _native, errors

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

TORCH_DTYPES = {name: dtype for dtype, name in _DTYPES.items()}


@dataclass(frozen=True)
class Record:
    """One tensor piece of this rank."""

    key: str
    find: Callable[[], torch.Tensor]  # the tensor as it is now, maybe a DTensor; training may put another in its place
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    group: str | None  # the ranks that hold the same bytes; None: this rank alone
    eager: bool  # may change before the next optimizer step
    look: Callable[[], None] | None = None  # to be called before find; one call does for all records that share it
    reshard: str = "refuse"  # what becomes of a rank's own in another number of ranks: also "leave", "any"

    def current(self) -> torch.Tensor:
        """This rank's piece as it is now."""
        if self.look is not None:
            self.look()
        return local_of(self.find())


def local_of(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's piece, without a copy."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


def whole(key: str, find: Callable[[], torch.Tensor], group: str | None, eager: bool,
          look: Callable[[], None] | None = None) -> Record:
    """The record of a tensor that this rank holds entirely."""
    shape = tuple(local_of(find()).shape)
    return Record(key, find, shape, (0,) * len(shape), group, eager, look)


def check_tensor(key: str, tensor: torch.Tensor):
    """Raises unless the library can copy this tensor as it lies."""
    if tensor.device.type not in ("cpu", "cuda"):
        raise errors.Unsupported(f"{key} is on {tensor.device}: only tensors on the CPU or a CUDA device can be "
                                 "saved")
    if tensor.layout != torch.strided:
        raise errors.Unsupported(f"{key} has layout {tensor.layout}: only dense tensors can be saved")
    if tensor.dtype not in _DTYPES:
        raise errors.Unsupported(f"{key} has dtype {tensor.dtype}, which cannot be saved")
    if tensor.dim() > _native.MAX_NDIM:
        raise errors.Unsupported(f"{key} has {tensor.dim()} dimensions, at most {_native.MAX_NDIM} can be saved")
    if not tensor.is_contiguous():
        raise errors.Unsupported(f"{key} of shape {tuple(tensor.shape)} is not contiguous (strides "
                                 f"{tensor.stride()}): make it so before init, e.g. tensor.data = "
                                 "tensor.data.contiguous()")


def _cuda_device(tensor: torch.Tensor) -> int | None:
    """The number of the CUDA device that it lies on."""
    return tensor.device.index if tensor.device.type == "cuda" else None


class _Row:
    """A record after registration. It keeps the memory alive that the library copies from."""

    def __init__(self, record: Record, number: int, tensor: torch.Tensor):
        self.record = record
        self.number = number
        self.shape = tensor.shape
        self.dtype = tensor.dtype
        self.device = tensor.device
        self.follow(tensor)

    def follow(self, tensor: torch.Tensor):
        self.address = tensor.data_ptr()
        # An alias: the tensor itself may be given other memory (tensor.data = ...), which would free this one.
        self._alive = tensor.detach()


def _seen(tensors: list[torch.Tensor]) -> tuple:
    """What tells whether one of many tensors has moved or changed, made quickly: each save asks it of all."""
    return (list(map(torch.Tensor.data_ptr, tensors)), list(map(torch.Tensor.size, tensors)),
            list(map(operator.attrgetter("dtype"), tensors)), all(map(torch.Tensor.is_contiguous, tensors)))


class RecordTable:
    def __init__(self, records: list[Record]):
        for record in records:
            check_tensor(record.key, record.current())
        self._records = records
        self._rows: list[_Row] = []
        self._seen = None
        self._looks = {record.look for record in records} - {None}
        self._finds = [record.find for record in records]
        self._cuda_devices = sorted({_cuda_device(record.current()) for record in records} - {None})

    def _current(self) -> list[torch.Tensor]:
        for look in self._looks:
            look()
        tensors = [find() for find in self._finds]
        if any(issubclass(kind, DTensor) for kind in set(map(type, tensors))):
            return list(map(local_of, tensors))
        return tensors

    def add_to(self, client: _native.Client):
        for record in self._records:
            tensor = record.current()
            number = client.add_record(
                key=record.key, dtype=_DTYPES[tensor.dtype], global_shape=record.global_shape,
                offset=record.offset, local_shape=tensor.shape, address=tensor.data_ptr(), group=record.group,
                when=_native.EAGER if record.eager else _native.LAZY, cuda_device=_cuda_device(tensor))
            if record.reshard != "refuse":
                client.set_reshard(record.key, record.reshard)
            self._rows.append(_Row(record, number, tensor))

    @property
    def on_devices(self) -> bool:
        return bool(self._cuda_devices)

    def tell_streams(self, client: _native.Client):
        """The calling thread's current stream of each device is the one whose work changes the records."""
        for device in self._cuda_devices:
            client.set_stream(device, torch.cuda.current_stream(device).cuda_stream)

    def refuse_capture(self):
        """Raises in the capture of a CUDA graph. The library would too, but what else a save asks torch for (the state
        of the generators, say) fails there with errors of its own, or spoils the graph."""
        for device in self._cuda_devices:
            with torch.cuda.device(device):
                if torch.cuda.is_current_stream_capturing():
                    raise errors.InvalidArgument(f"the current stream of CUDA device {device} is being captured into a "
                                                 "graph: saves belong outside of it")

    def refresh(self, client: _native.Client):
        """Tells the library of tensors that have moved. No copy may be under way (after a fence)."""
        tensors = self._current()
        seen = _seen(tensors)
        if seen == self._seen:
            return
        for row, tensor in zip(self._rows, tensors):
            if tensor.shape != row.shape or tensor.dtype != row.dtype:
                raise errors.LayoutError(
                    f"{row.record.key} was registered as {row.dtype} {tuple(row.shape)} and is now {tensor.dtype} "
                    f"{tuple(tensor.shape)}: close this checkpoint and call init again")
            if tensor.device != row.device:
                raise errors.LayoutError(f"{row.record.key} was registered on {row.device} and is now on "
                                         f"{tensor.device}: close this checkpoint and call init again")
            check_tensor(row.record.key, tensor)
            if tensor.data_ptr() != row.address:
                client.set_address(row.number, tensor.data_ptr())
                row.follow(tensor)
        self._seen = seen
