# SPDX-License-Identifier: Apache-2.0
"""Reading into tensors that the library cannot write to by itself: those on devices, and those whose elements do not
lie one after the other. They are read in pieces of bounded size through host memory, so that no tensor is on the host
as a whole. While one piece is copied to a device, the next one is read."""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import torch

from ..state.records import pour, saved_dtype, saved_shape

PIECE_BYTES = 64 << 20
"""The size of a buffer, of which there are two. The copy of so much to a device takes some milliseconds, which is long
beside the call that starts it, and the two buffers are small beside the host memory that a process has per device."""

Box = tuple[tuple[int, ...], tuple[int, ...]]
"""Where a part of a tensor begins, and its size."""


def boxes(shape: tuple[int, ...], most: int) -> Iterator[Box]:
    """Boxes of at most so many elements that make up a tensor, in the order in which they lie in it. Each is contiguous
    in it."""
    size, split = 1, len(shape)  # the dimensions from `split` on are never cut
    while split > 0 and size * shape[split - 1] <= most:
        split -= 1
        size *= shape[split]
    if split == 0 or 0 in shape:
        yield (0,) * len(shape), shape
        return
    length, rest = max(1, most // size), shape[split:]
    for outer in product(*map(range, shape[:split - 1])):
        for at in range(0, shape[split - 1], length):
            yield (*outer, at, *(0 for _ in rest)), (*(1 for _ in outer), min(length, shape[split - 1] - at), *rest)


def is_written_in_place(tensor: torch.Tensor) -> bool:
    """Whether the library can read into the memory of this tensor."""
    return tensor.device.type == "cpu" and tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def _host_memory(size: int, pinned: bool) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, pin_memory=pinned)


def _end_of_copies(device: torch.device) -> Any:
    """An event after what the calling thread has started on this device; who waits for it sleeps."""
    cuda: Any = torch.cuda  # Event has no types
    event = cuda.Event(blocking=True)
    event.record(torch.cuda.current_stream(device))
    return event


class _Buffer:
    """Host memory for one piece at a time. If it is pinned, the copy of a piece goes on after `hand` has returned."""

    def __init__(self, pinned: bool) -> None:
        self._pinned = pinned
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._busy: Any = None

    def take(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Memory for a piece, when the copy of the piece before is over."""
        self.wait()
        size = math.prod(shape) * dtype.itemsize
        if self._memory.numel() < size:
            self._memory = _host_memory(size, self._pinned)
        return self._memory[:size].view(dtype).view(shape)

    def hand(self, piece: torch.Tensor, target: torch.Tensor) -> None:
        pour(piece, target, non_blocking=self._pinned)
        if self._pinned:
            self._busy = _end_of_copies(target.device)

    def wait(self) -> None:
        busy, self._busy = self._busy, None
        if busy is not None:
            busy.synchronize()


class Pieces:
    """The buffers, which are made when they are first needed and used again for every tensor."""

    def __init__(self) -> None:
        self._buffers: dict[bool, tuple[_Buffer, _Buffer]] = {}

    def fill(self, target: torch.Tensor, read: Callable[[Box, int], object]) -> None:
        """Fills a tensor. `read` reads a box of it, as files have it, to an address. When this returns or raises, no
        copy is under way."""
        target, shape, dtype = target.detach(), tuple(saved_shape(target)), saved_dtype(target)
        pinned = target.device.type == "cuda"
        buffers = self._buffers.setdefault(pinned, (_Buffer(pinned), _Buffer(pinned)))
        try:
            for number, box in enumerate(boxes(shape, PIECE_BYTES // dtype.itemsize)):
                buffer = buffers[number % len(buffers)]
                piece = buffer.take(box[1], dtype)
                read(box, piece.data_ptr())
                buffer.hand(piece, _part(target, box))
        finally:
            for buffer in buffers:
                buffer.wait()


def _part(target: torch.Tensor, box: Box) -> torch.Tensor:
    """This box of the tensor. In files a complex number is a pair, which is never cut, as one more dimension."""
    part = target
    for dim, (at, size) in enumerate(zip(*box, strict=True)):
        if dim < target.dim():
            part = part.narrow(dim, at, size)
    return part
