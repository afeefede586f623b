# SPDX-License-Identifier: Apache-2.0
"""extra_state: whatever else the user wants to be restored. Each rank has its own.

It is either a dict of JSON values and tensors, which is restored in place, or an object with state_dict() and
load_state_dict(). Small tensors are part of the JSON value, which may have other tensors at each save. Large tensors
are records: they are copied into tensors that Tierckpt owns, because state_dict() may return other tensors at each
call. A large tensor that appears later, or that changes its form, becomes part of the JSON value if the capacity allows
it."""

import enum
from typing import Any

import torch

from .. import errors
from .arguments import Stateful
from .blobs import Blob
from .records import Record, check_tensor, fixed
from .sharding import Placer
from .statetree import TENSOR, join, split

SMALL_BYTES = 64 * 1024


class UserState:
    def __init__(self, source: dict[str, Any] | Stateful, reshard: str = "leave") -> None:
        """reshard: what becomes of it with another number of ranks, as for Blob."""
        methods = (getattr(source, "state_dict", None), getattr(source, "load_state_dict", None))
        if not isinstance(source, dict) and not all(map(callable, methods)):
            raise errors.InvalidArgumentError(
                "extra_state must be a dict, or have state_dict() and load_state_dict(), and "
                f"this is of type {type(source).__name__}")
        self._source, self._reshard = source, reshard
        tensors: dict[str, torch.Tensor] = {}
        split(self._state(), "extra", tensors)
        for path, tensor in tensors.items():
            check_tensor(path, tensor)
        self._holders = {path: tensor.detach().clone(memory_format=torch.contiguous_format).resolve_conj()
                         for path, tensor in tensors.items() if tensor.nbytes > SMALL_BYTES}

    def _state(self) -> dict[str, Any]:
        return self._source if isinstance(self._source, dict) else self._source.state_dict()

    def records(self, placer: Placer) -> list[Record]:
        return [placer.private(path, fixed(holder), reshard=self._reshard)
                for path, holder in self._holders.items()]

    def blob(self, capacity: int | None) -> Blob:
        return Blob("extra_state", self._capture, self._apply, capacity, reshard=self._reshard)

    def _capture(self) -> Any:
        tensors: dict[str, torch.Tensor] = {}
        value = split(self._state(), "extra", tensors)
        return join(value, lambda path: self._held(path, tensors[path]))

    def _held(self, path: str, tensor: torch.Tensor) -> Any:
        """What represents a tensor in the JSON value."""
        holder = self._holders.get(path)
        if holder is None or tensor.shape != holder.shape or tensor.dtype != holder.dtype:
            return tensor
        holder.copy_(tensor.detach())
        return {TENSOR: path}

    def _apply(self, value: Any) -> None:
        put_back(self._source, join(value, self._holders.__getitem__))


def put_back(source: dict[str, Any] | Stateful, value: Any) -> None:
    """Restores a state that was read from the same source."""
    if isinstance(source, dict):
        _update(source, value)
    else:
        source.load_state_dict(_copied(value))


def _update(target: dict[str, Any], saved: dict[str, Any]) -> None:
    """Saved values replace the present ones; tensors keep their memory if they have the same form. Keys that were not
    saved stay, because the program may depend on them."""
    for key, value in saved.items():
        target[key] = _restored(target.get(key), value)


def _restored(target: Any, value: Any) -> Any:
    if torch.is_tensor(value):
        same = torch.is_tensor(target) and target.shape == value.shape and target.dtype == value.dtype
        if not same:
            return value.clone()
        with torch.no_grad():
            return target.copy_(value)
    if isinstance(value, dict):
        return _restored_dict(target, value)
    if type(value) in (list, tuple):
        before = target if type(target) is type(value) and len(target) == len(value) else [None] * len(value)
        items = type(value)(map(_restored, before, value))
        if type(target) is not list or type(value) is not list:
            return items
        target[:] = items
        return target
    return _member(target, value)


def _member(target: Any, value: Any) -> Any:
    """A member of an enumeration of texts or numbers is saved as what it stands for. If there is one in its place, the
    value becomes a member again, since a program may compare it with `is`."""
    members = {member.value: member for member in type(target)} if isinstance(target, enum.Enum) else {}
    return members.get(value, value)


def _restored_dict(target: Any, value: dict[str, Any]) -> dict[str, Any]:
    """Changes the dict in place, because the program may hold references to parts of what it gave to init."""
    known = isinstance(target, dict)
    items = {key: _restored(target.get(key) if known else None, item) for key, item in value.items()}
    if not known:
        made: dict[str, Any] = items if type(value) is dict else type(value)(items)
        return made
    target.clear()
    target.update(items)
    updated: dict[str, Any] = target
    return updated


def _copied(value: Any) -> Any:
    return _restored(None, value)
