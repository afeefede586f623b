# SPDX-License-Identifier: Apache-2.0
"""Objects with large tensors, copied for another process of this node: the tensors into memory that both have mapped,
the rest as a pickle behind them."""

import ctypes
import io
import mmap
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch

from .. import errors

_ALIGNMENT = 256


@dataclass(frozen=True)
class Place:
    """Where in the memory the pickle of a copied object is."""

    offset: int
    length: int


class SharedMemory:
    """Memory behind a file descriptor, which another process inherits. It grows, and is kept for the next copy."""

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("tierckpt-files")
        self._mapped: torch.Tensor | None = None
        self._pinned = False

    def copy(self, value: Any) -> Place:
        """Copies a value, whose tensors may be on any device, over the one before. Raises IoError if there is not
        enough memory."""
        pickler = _Pickler()
        pickler.dump(value)
        text = torch.frombuffer(bytearray(pickler.text()), dtype=torch.uint8)
        memory = self._of_size(pickler.end + text.numel())
        for tensor, offset in pickler.tensors:
            _at(memory, offset, tensor.dtype, tensor.size()).copy_(tensor, non_blocking=True)
        _at(memory, pickler.end, torch.uint8, text.size()).copy_(text)
        if any(tensor.is_cuda for tensor, _ in pickler.tensors):
            torch.cuda.current_stream().synchronize()
        return Place(pickler.end, text.numel())

    def _of_size(self, size: int) -> torch.Tensor:
        if self._mapped is None or self._mapped.numel() < size:
            self._release()
            try:
                os.posix_fallocate(self.descriptor, 0, size)  # or writing would end the process if memory is short
                self._mapped = torch.frombuffer(mmap.mmap(self.descriptor, size), dtype=torch.uint8)
            except OSError as error:
                raise errors.IoError(f"{size >> 20} MiB of memory for a copy of the state: {error.strerror}") from error
            self._pinned = _pin(self._mapped)
        return self._mapped

    def _release(self) -> None:
        if self._mapped is not None and self._pinned:
            cuda: Any = torch.cuda
            cuda.cudart().cudaHostUnregister(self._mapped.data_ptr())
        self._mapped, self._pinned = None, False

    def close(self) -> None:
        self._release()
        os.close(self.descriptor)


def read_copy(descriptor: int, place: Place) -> Any:
    """The value in another process. Its tensors lie in the shared memory."""
    memory = torch.frombuffer(mmap.mmap(descriptor, os.fstat(descriptor).st_size), dtype=torch.uint8)
    text = memory[place.offset:place.offset + place.length].numpy().tobytes()
    return _Unpickler(io.BytesIO(text), memory).load()


def hollow(tensor: torch.Tensor) -> torch.Tensor:
    """In the place of a tensor whose content the other process does not need: it takes no room."""
    return torch.empty(tensor.size(), dtype=tensor.dtype, device="meta")


class _Pickler(pickle.Pickler):
    """Leaves out the tensors, and gives each of them a place."""

    def __init__(self) -> None:
        self._text = io.BytesIO()
        super().__init__(self._text, protocol=5)
        self.tensors: list[tuple[torch.Tensor, int]] = []
        self.end = 0

    def text(self) -> bytes:
        return self._text.getvalue()

    def persistent_id(self, value: Any) -> Any:
        if not torch.is_tensor(value) or value.layout != torch.strided:
            return None
        tensor = value.detach()
        if tensor.is_meta:
            return None, tensor.dtype, tuple(tensor.size())
        offset = self.end
        self.tensors.append((tensor, offset))
        self.end += -(-tensor.numel() * tensor.element_size() // _ALIGNMENT) * _ALIGNMENT
        return offset, tensor.dtype, tuple(tensor.size())


class _Unpickler(pickle.Unpickler):
    def __init__(self, text: io.BytesIO, memory: torch.Tensor) -> None:
        super().__init__(text)
        self._memory = memory

    def persistent_load(self, place: Any) -> torch.Tensor:
        offset, dtype, size = place
        if offset is None:
            return torch.empty(1, dtype=dtype).expand(size)
        return _at(self._memory, offset, dtype, size)


def _at(memory: torch.Tensor, offset: int, dtype: torch.dtype, size: Any) -> torch.Tensor:
    """With a storage of its own, since many functions write the whole storage of a tensor."""
    empty = torch.empty(size, dtype=dtype, device="meta")
    length = empty.numel() * empty.element_size()
    if length == 0:
        return torch.empty(size, dtype=dtype)
    region = (ctypes.c_ubyte * length).from_address(memory.data_ptr() + offset)
    region.memory = memory  # type: ignore[attr-defined]  # it lives as long as the tensor
    return torch.frombuffer(region, dtype=dtype).view(size)


def _pin(memory: torch.Tensor) -> bool:
    """So that devices copy into it at full speed; without it they only copy more slowly.

    In a thread of its own: a failure stays the last error of its thread, and a kernel of the training would report it.
    """
    cuda: Any = torch.cuda
    if not cuda.is_available() or not cuda.is_initialized():
        return False
    with ThreadPoolExecutor(1) as pool:
        status = pool.submit(cuda.cudart().cudaHostRegister, memory.data_ptr(), memory.numel(), 0).result()
    return int(status) == 0
