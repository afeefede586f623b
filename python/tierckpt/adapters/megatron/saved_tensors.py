# SPDX-License-Identifier: Apache-2.0
"""The tensors of a published version, read into those of a rank that has other parts of the same global tensors.

Which elements of which saved tensor a rank needs is computed first, and everything that is missing is found then; the
reading comes afterwards, in pieces of bounded size.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

from ... import errors
from ...core.published import Published
from ...state.records import Record
from ...state.sharding import split_rank
from ...state.walk_optimizer import state_key
from .description import Here, Local, Saved
from .parts import Copy, Holders, Part, Sizes, clip, copies_into, is_padding, moved, pieces, zeros

_MASTER = "fp32_param"
_READ_BYTES = 64 << 20  # at once, into memory from which the elements are picked


@dataclass(frozen=True)
class _Target:
    """A tensor to be read: a parameter or buffer, or a state of it (`path`). Of the flattened parameter it has the
    elements from `low` on, or all of them."""

    key: str
    path: str  # "": the parameter or buffer itself
    tensor: torch.Tensor
    low: int
    numel: int


class SavedTensors:
    """What was saved, and who has which part of it."""

    def __init__(self, version: Published, saved: Saved, here: Here) -> None:
        self._version, self._own = version, here.description
        self._same = saved.has_same(here)
        self._known = set(version.keys)
        self._private = {split_rank(entry.key)[1]: index for index, entry in enumerate(version.entries)
                         if not entry.blob and split_rank(entry.key)[0] is not None}
        wanted = {part.key for local in self._own.tensors.values() for part in local.parts}
        self.resized: set[str] = set()
        """Global tensors that have another size now, with both."""
        self._copies_of: dict[tuple[str, int, int], list[Copy]] = {}
        self._saved: dict[str, Local] = {}
        parts: dict[str, list[tuple[str, Part]]] = {}
        for description in saved.descriptions.values():
            for key, local in description.tensors.items():
                if key not in self._saved and any(part.key in wanted for part in local.parts):
                    self._saved[key] = local
                    for part in local.parts:
                        parts.setdefault(part.key, []).append((key, part))
        self._holders = {key: Holders(of_key) for key, of_key in parts.items()}
        here_is = {part.key: (part, local.dtype) for local in self._own.tensors.values() for part in local.parts}
        for wanted_part, dtype in here_is.values():
            self._compare(wanted_part, dtype)

    def reader(self, record: Record, key: str, tensor: torch.Tensor) -> Callable[[], object]:
        """A function that fills the tensor of a record. Raises LayoutError if the version lacks a part of it."""
        target = self._target(record, key, tensor)
        if tensor.dim() == 0 and target.path:
            return self._scalar(target)
        copies = self._copies(target)
        jobs = [(source, self._entry(source, target), [copy for copy in copies if copy.source == source])
                for source in dict.fromkeys(copy.source for copy in copies)]
        return lambda: _fill(self._version, tensor.detach(), [(entry, its) for _, entry, its in jobs])

    def _target(self, record: Record, key: str, tensor: torch.Tensor) -> _Target:
        flat = len(record.global_shape) == 1
        low = record.offset[0] if flat else 0
        if key in self._own.tensors or not key.startswith("optimizer."):
            return _Target(key, "", tensor, low, tensor.numel())
        name = key.removeprefix("optimizer.")
        at = len(name)
        while (at := name.rfind(".", 0, at)) > 0:
            if name[:at] in self._own.tensors:
                return _Target(name[:at], name[at + 1:], tensor, low, tensor.numel())
        at = name.rfind(".")
        return _Target(name[:at], name[at + 1:], tensor, low, tensor.numel())

    # ---- which elements

    def _copies(self, target: _Target) -> list[Copy]:
        local, place = self._own.tensors.get(target.key), (target.key, target.low, target.numel)
        if local is None:
            return self._undescribed(target)
        if place not in self._copies_of:  # the states of a parameter are where it is
            self._copies_of[place] = self._computed(target, local)
        return self._copies_of[place]

    def _computed(self, target: _Target, local: Local) -> list[Copy]:
        copies: list[Copy] = []
        for whole in local.parts:
            sources, saved = self._sources(target.key, whole), self._whole(whole.key)
            for part in clip(whole, target.low, target.low + target.numel):
                made, left = copies_into(part, sources)
                copies += made
                for box in left:
                    if saved is None or not is_padding(part, box, saved):
                        raise errors.LayoutError(f"{target.key}: no rank has saved {part.key} at {box[0]}, {box[1]} "
                                                 "elements: it was saved by another model")
                    copies.append(zeros(part, box))
        return moved(copies, target.low)

    def _whole(self, key: str) -> Sizes | None:
        """The shape of the global tensor that was saved."""
        return next((part.whole for _, part in self._holders.get(key, ())), None)

    def _compare(self, wanted: Part, dtype: str) -> None:
        """Raises LayoutError if the global tensor that was saved is another one."""
        for name, part in self._holders.get(wanted.key, ()):
            if part.whole != wanted.whole and _may_be_padded(part, wanted):
                self.resized.add(f"{wanted.key} (it has {wanted.whole[0]} rows and had {part.whole[0]})")
            elif part.whole != wanted.whole:
                raise errors.LayoutError(f"{wanted.key} is {part.whole} in {self._version.info.path}, and "
                                         f"{wanted.whole} here: it was saved by another model")
            if self._saved[name].dtype != dtype:
                raise errors.LayoutError(f"{wanted.key} is {self._saved[name].dtype} in {self._version.info.path}, and "
                                         f"{dtype} here: it was saved by another model")

    def _sources(self, key: str, wanted: Part) -> list[tuple[str, Part]]:
        """The tensor of the same name first, whose values are then the ones that this rank's place had."""
        holders = self._holders.get(wanted.key)
        return [] if holders is None else sorted(holders.near(wanted), key=lambda source: source[0] != key)

    def _undescribed(self, target: _Target) -> list[Copy]:
        """A tensor that is not in Megatron's sharded state dict: nobody knows what it means in another layout."""
        if not self._same:
            raise errors.LayoutError(f"{target.key} cannot be loaded with other parallel sizes than those of the save: "
                                     "the sharded_state_dict() of its module does not have it")
        key, _ = self._entry(target.key, target)
        if math.prod(self._version.shape(key)) < target.low + target.numel:
            raise errors.LayoutError(f"{key} is {self._version.shape(key)} in {self._version.info.path}, and "
                                     f"{tuple(target.tensor.shape)} here: it was saved by another model")
        return [Copy(target.key, (target.numel,), target.low, (1,), 0, (1,))]

    # ---- which entries of the version

    def _entry(self, source: str | None, target: _Target) -> tuple[str, bool]:
        """The key of what is read, and whether it has to be rounded."""
        if source is None:
            return "", False
        master = state_key(source, _MASTER)
        wanted = source if target.path == "" else state_key(source, target.path)
        found, rounded = wanted, False
        if wanted not in self._known and target.path == "" and master in self._known:
            found, rounded = master, target.tensor.dtype != torch.float32
        elif wanted not in self._known and target.path == _MASTER and source in self._known:
            found = source
        if found not in self._known:
            raise errors.LayoutError(f"{wanted} is not in {self._version.info.path}: it was saved by another model or "
                                     "optimizer")
        if self._version.dtype(found) != target.tensor.dtype and not rounded:
            raise errors.LayoutError(f"{found} is {self._version.dtype(found)} in {self._version.info.path}, and "
                                     f"{target.tensor.dtype} here: it was saved by another model")
        return found, rounded

    def _scalar(self, target: _Target) -> Callable[[], object]:
        """A count of steps: the same for all parts of a parameter."""
        local = self._own.tensors.get(target.key)
        names = [target.key] if local is None and self._same else []
        if local is not None:
            names += [name for part in local.parts for name, _ in self._holders.get(part.key, ())]
        for name in names:
            key = state_key(name, target.path) if target.path else name
            if key in self._known:
                return partial(self._read_scalar, partial(self._version.read, key), target)
            if key in self._private:
                return partial(self._read_scalar, partial(self._version.read_entry, self._private[key]), target)
        raise errors.LayoutError(f"{target.path} of {target.key} is not in {self._version.info.path}: it was saved by "
                                 "another model or optimizer")

    @staticmethod
    def _read_scalar(read: Callable[[], torch.Tensor], target: _Target) -> None:
        target.tensor.detach().copy_(read().view(()))


def _may_be_padded(saved: Part, wanted: Part) -> bool:
    """Whether the numbers of rows may differ, as those of a vocabulary do."""
    return saved.flexible and wanted.flexible and saved.whole[1:] == wanted.whole[1:]


# ---- reading


def _fill(version: Published, tensor: torch.Tensor, jobs: list[tuple[tuple[str, bool], list[Copy]]]) -> None:
    contiguous = tensor.is_contiguous()
    flat = tensor.view(-1) if contiguous else torch.empty(tensor.numel(), dtype=tensor.dtype, device=tensor.device)
    for (key, rounded), copies in jobs:
        for copy in sorted(copies, key=lambda copy: copy.start):
            if copy.source is None:
                _view(flat, copy.sizes, copy.to_strides, copy.to_start).zero_()
            elif rounded or not _read_run(version, key, copy, flat):
                _read_pieces(version, key, copy, flat)
    if not contiguous:
        tensor.copy_(flat.view(tensor.shape))


def _view(flat: torch.Tensor, sizes: tuple[int, ...], strides: tuple[int, ...], start: int) -> torch.Tensor:
    return flat.as_strided(sizes, strides, flat.storage_offset() + start)


def _read_run(version: Published, key: str, copy: Copy, flat: torch.Tensor) -> bool:
    """Reads into place what lies there as it was saved. Returns whether that is so."""
    shape = version.shape(key)
    row, length = math.prod(shape[1:]), copy.numel
    if not copy.is_run() or len(shape) == 0 or row == 0 or copy.start % row or length % row:
        return False
    out = flat[copy.to_start:copy.to_start + length].view(length // row, *shape[1:])
    version.read_box(key, (copy.start // row, *(0,) * (len(shape) - 1)), tuple(out.shape), out=out)
    return True


def _read_pieces(version: Published, key: str, copy: Copy, flat: torch.Tensor) -> None:
    most = _READ_BYTES // version.dtype(key).itemsize
    for piece in pieces(copy, most):
        read = _range(version, key, piece.start, piece.start + piece.span)
        _view(flat, piece.sizes, piece.to_strides, piece.to_start).copy_(_view(read, piece.sizes, piece.strides, 0))


def _range(version: Published, key: str, low: int, high: int) -> torch.Tensor:
    """Elements low to high - 1 of a flattened tensor; of one with several dimensions whole rows are read."""
    shape = version.shape(key)
    row = math.prod(shape[1:])
    first, last = low // row, -(-high // row)
    if len(shape) == 0:
        return version.read(key).view(-1)
    read = version.read_box(key, (first, *(0,) * (len(shape) - 1)), (last - first, *shape[1:]))
    return read.view(-1)[low - first * row:high - first * row]
