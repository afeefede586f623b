# SPDX-License-Identifier: Apache-2.0
"""Local tensors as parts of global ones, and what has to be copied from those of one layout to those of another.

Pure: nothing here reads a tensor. A local tensor is counted as a flat one, in C order. That makes no difference between
a whole parameter and a range of it, which is what the distributed optimizer keeps, and it can also describe tensors
that Megatron splits or transposes before they become parts of a global one.
"""

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

Sizes = tuple[int, ...]
Box = tuple[Sizes, Sizes]
"""Where a box begins, and its size."""


@dataclass(frozen=True)
class Part:
    """A box of a global tensor, and where its elements are in a local one: index i of the box is the element start +
    sum(i[d] * strides[d])."""

    key: str  # of the global tensor
    whole: Sizes  # its shape
    offset: Sizes
    sizes: Sizes
    start: int
    strides: Sizes
    flexible: bool = False  # the shape of the global tensor may differ between layouts: the rest is padding

    @property
    def numel(self) -> int:
        return _numel(self.sizes)

    def within(self, box: Box) -> "Part":
        """The part of this one in a box of the global tensor, which must be inside."""
        start = self.start + sum((at - begin) * stride for at, begin, stride
                                 in zip(box[0], self.offset, self.strides, strict=True))
        return replace(self, offset=box[0], sizes=box[1], start=start)


@dataclass(frozen=True)
class Copy:
    """Elements to be copied from a local tensor that was saved to one that is loaded, as strided views of both."""

    source: str | None  # the tensor that was saved; None: there is nothing to copy, the elements become zero
    sizes: Sizes
    start: int
    strides: Sizes
    to_start: int
    to_strides: Sizes

    @property
    def numel(self) -> int:
        return _numel(self.sizes)

    @property
    def span(self) -> int:
        """How many elements of the source lie from the first one to the last one."""
        return 1 + _extent(self.sizes, self.strides)

    def is_run(self) -> bool:
        """Whether the elements lie one after the other in both tensors. Only for one that is `simple`."""
        return len(self.sizes) == 0 or (self.strides == (1,) and self.to_strides == (1,))


def _numel(sizes: Sizes) -> int:
    product = 1
    for size in sizes:
        product *= size
    return product


def _extent(sizes: Sizes, strides: Sizes) -> int:
    """The distance from the first element to the last one."""
    return sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def c_strides(sizes: Sizes) -> Sizes:
    """The strides of a contiguous tensor."""
    strides, stride = [], 1
    for size in reversed(sizes):
        strides.append(stride)
        stride *= size
    return tuple(reversed(strides))


# ---- boxes


def _common(a: Box, b: Box) -> Box | None:
    begin = tuple(map(max, a[0], b[0]))
    end = tuple(min(x + m, y + n) for x, m, y, n in zip(a[0], a[1], b[0], b[1], strict=True))
    sizes = tuple(last - first for first, last in zip(begin, end, strict=True))
    return (begin, sizes) if all(size > 0 for size in sizes) else None


def _without(box: Box, hole: Box) -> Iterator[Box]:
    """What remains of a box without another one that is inside it, in disjoint boxes."""
    begin, sizes = list(box[0]), list(box[1])
    for d, (at, size) in enumerate(zip(*hole, strict=True)):
        end, hole_end = begin[d] + sizes[d], at + size
        for first, last in ((begin[d], at), (hole_end, end)):
            if first < last:
                yield (tuple([*begin[:d], first, *begin[d + 1:]]), tuple([*sizes[:d], last - first, *sizes[d + 1:]]))
        begin[d], sizes[d] = at, size


def clip(part: Part, low: int, high: int) -> Iterator[Part]:
    """The elements of a part that are numbers low to high - 1 of the local tensor, as parts."""
    if part.numel == 0:
        return
    last = part.start + _extent(part.sizes, part.strides)
    if low <= part.start and last < high:
        yield part
        return
    if last < low or high <= part.start:
        return
    d = max((d for d, size in enumerate(part.sizes) if size > 1), key=lambda d: part.strides[d])
    stride, size = part.strides[d], part.sizes[d]
    rest = last - part.start - (size - 1) * stride  # from the first to the last element of one slice
    first = min(max(0, -((part.start - low) // stride)), size)  # the slices that are inside as a whole
    end = max(first, min(size, (high - 1 - rest - part.start) // stride + 1))
    touched = max(0, (low - part.start - rest + stride - 1) // stride), min(size, (high - 1 - part.start) // stride + 1)
    for at in range(touched[0], min(first, touched[1])):
        yield from clip(_slice(part, d, at, 1), low, high)
    if first < end:
        yield _slice(part, d, first, end - first)
    for at in range(max(end, touched[0]), touched[1]):
        yield from clip(_slice(part, d, at, 1), low, high)


def _slice(part: Part, d: int, at: int, size: int) -> Part:
    def changed(values: Sizes, value: int) -> Sizes:
        return (*values[:d], value, *values[d + 1:])

    return part.within((changed(part.offset, part.offset[d] + at), changed(part.sizes, size)))


# ---- copies


class Holders:
    """Who has which parts of one global tensor, in the order in which they are to be asked. There may be hundreds, for
    as many experts, so they are found by where they begin along the first dimension."""

    def __init__(self, parts: Iterable[tuple[str, Part]]) -> None:
        self._in_order = list(parts)
        placed = sorted((part.offset[:1], number) for number, (_, part) in enumerate(self._in_order))
        self._begins = [begin for begin, _ in placed]
        self._numbers = [number for _, number in placed]
        self._longest = max((part.sizes[0] for _, part in self._in_order if part.sizes), default=0)

    def __iter__(self) -> Iterator[tuple[str, Part]]:
        return iter(self._in_order)

    def near(self, part: Part) -> list[tuple[str, Part]]:
        """Those that may have elements of this part."""
        first, last = 0, len(self._numbers)
        if part.sizes:
            first = bisect.bisect_right(self._begins, (part.offset[0] - self._longest,))
            last = bisect.bisect_left(self._begins, (part.offset[0] + part.sizes[0],))
        return [self._in_order[number] for number in sorted(self._numbers[first:last])]


def copies_into(wanted: Part, sources: Iterable[tuple[str, Part]]) -> tuple[list[Copy], list[Box]]:
    """What fills a part of a local tensor from parts that were saved, each with the name of its local tensor. Of those
    that have the same element the first one is taken. Also returns the boxes of the global tensor that none of them
    has."""
    copies, left = [], [(wanted.offset, wanted.sizes)]
    for name, source in sources:
        if not left:
            break
        remaining: list[Box] = []
        for box in left:
            common = _common(box, (source.offset, source.sizes))
            if common is None:
                remaining.append(box)
                continue
            have, want = source.within(common), wanted.within(common)
            copies.append(simple(Copy(name, common[1], have.start, have.strides, want.start, want.strides)))
            remaining += _without(box, common)
        left = remaining
    return copies, left


def zeros(wanted: Part, box: Box) -> Copy:
    part = wanted.within(box)
    return simple(Copy(None, box[1], 0, part.strides, part.start, part.strides))


def is_padding(wanted: Part, box: Box, saved: Sizes) -> bool:
    """Whether a box that was not saved is outside of the global tensor that was saved, whose shape may be another."""
    return wanted.flexible and any(at >= size for at, size in zip(box[0], saved, strict=True))


def simple(copy: Copy) -> Copy:
    """The same with as few dimensions as possible, in the order in which the source has them."""
    dims = sorted(((stride, to_stride, size) for size, stride, to_stride
                   in zip(copy.sizes, copy.strides, copy.to_strides, strict=True) if size != 1), reverse=True)
    merged: list[tuple[int, int, int]] = []
    for stride, to_stride, size in dims:
        if merged and merged[-1][:2] == (stride * size, to_stride * size):
            merged[-1] = stride, to_stride, size * merged[-1][2]
        else:
            merged.append((stride, to_stride, size))
    return replace(copy, strides=tuple(one[0] for one in merged), to_strides=tuple(one[1] for one in merged),
                   sizes=tuple(one[2] for one in merged))


def pieces(copy: Copy, most: int) -> Iterator[Copy]:
    """The same in pieces for each of which at most so many elements of the source have to be read."""
    if copy.span <= most or copy.numel <= 1:
        yield copy
        return
    d = max((d for d, size in enumerate(copy.sizes) if size > 1), key=lambda d: copy.strides[d])
    length = max(1, min(copy.sizes[d] - 1, most // copy.strides[d]))
    for at in range(0, copy.sizes[d], length):
        size = min(length, copy.sizes[d] - at)
        part = replace(copy, sizes=(*copy.sizes[:d], size, *copy.sizes[d + 1:]),
                       start=copy.start + at * copy.strides[d], to_start=copy.to_start + at * copy.to_strides[d])
        yield from pieces(part, most)


def moved(copies: Sequence[Copy], by: int) -> list[Copy]:
    """The same into a tensor that begins so many elements later."""
    return [replace(copy, to_start=copy.to_start - by) for copy in copies]
