# SPDX-License-Identifier: Apache-2.0
"""Tensor pieces as the library knows them, and the table that keeps their addresses up to date."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

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


@dataclass(frozen=True)
class Record:
    """One tensor piece of this rank."""

    key: str
    current: Callable[[], torch.Tensor]  # this rank's piece as it is now; training may put another tensor in its place
    global_shape: tuple[int, ...]
    offset: tuple[int, ...]
    group: str | None  # the ranks that hold the same bytes; None: this rank alone
    eager: bool  # may change before the next optimizer step


def whole(key: str, current: Callable[[], torch.Tensor], group: str | None, eager: bool) -> Record:
    """The record of a tensor that this rank holds entirely."""
    shape = tuple(current().shape)
    return Record(key, current, shape, (0,) * len(shape), group, eager)


def check_tensor(key: str, tensor: torch.Tensor):
    """Raises unless the library can copy this tensor as it lies."""
    if tensor.device.type != "cpu":
        raise errors.Unsupported(f"{key} is on {tensor.device}: device tensors need the CUDA module, "
                                 "which this version does not have")
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


class _Row:
    """A record after registration. It keeps the memory alive that the library copies from."""

    def __init__(self, record: Record, number: int, tensor: torch.Tensor):
        self.record = record
        self.number = number
        self.shape = tensor.shape
        self.dtype = tensor.dtype
        self.follow(tensor)

    def follow(self, tensor: torch.Tensor):
        self.address = tensor.data_ptr()
        # An alias: the tensor itself may be given other memory (tensor.data = ...), which would free this one.
        self._alive = tensor.detach()


class RecordTable:
    def __init__(self, records: list[Record]):
        for record in records:
            check_tensor(record.key, record.current())
        self._records = records
        self._rows: list[_Row] = []

    def add_to(self, client: _native.Client):
        for record in self._records:
            tensor = record.current()
            number = client.add_record(
                key=record.key, dtype=_DTYPES[tensor.dtype], global_shape=record.global_shape,
                offset=record.offset, local_shape=tensor.shape, address=tensor.data_ptr(), group=record.group,
                when=_native.EAGER if record.eager else _native.LAZY)
            self._rows.append(_Row(record, number, tensor))

    def refresh(self, client: _native.Client):
        """Tells the library of tensors that have moved. No copy may be under way (after a fence)."""
        for row in self._rows:
            tensor = row.record.current()
            if tensor.shape != row.shape or tensor.dtype != row.dtype:
                raise errors.LayoutError(
                    f"{row.record.key} was registered as {row.dtype} {tuple(row.shape)} and is now {tensor.dtype} "
                    f"{tuple(tensor.shape)}: close this checkpoint and call init again")
            if tensor.data_ptr() != row.address:
                check_tensor(row.record.key, tensor)
                client.set_address(row.number, tensor.data_ptr())
                row.follow(tensor)
