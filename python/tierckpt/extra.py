# SPDX-License-Identifier: Apache-2.0
"""extra_state: what else the user wants to have back, private to each rank.

Either a dict of JSON values and tensors, restored in place, or an object with state_dict() and load_state_dict().
Tensors inside are copied into holders of ours, because state_dict() may hand out others at every call.
"""

import torch

from . import errors
from .blobs import Blob
from .placer import Placer
from .records import Record, check_tensor

_TENSOR = "$extra_tensor"  # stands in the JSON value for the tensor at this place


class Extra:
    def __init__(self, source):
        methods = (getattr(source, "state_dict", None), getattr(source, "load_state_dict", None))
        if not isinstance(source, dict) and not all(map(callable, methods)):
            raise errors.InvalidArgument("extra_state must be a dict, or have state_dict() and load_state_dict(); it "
                                         f"is a {type(source).__name__}")
        self._source = source
        tensors = {}
        _split(self._state(), "extra", tensors)
        for path, tensor in tensors.items():
            check_tensor(path, tensor)
        self._holders = {path: tensor.detach().clone() for path, tensor in tensors.items()}

    def _state(self):
        return self._source if isinstance(self._source, dict) else self._source.state_dict()

    def records(self, placer: Placer) -> list[Record]:
        return [placer.private(path, lambda holder=holder: holder, reshard="leave")
                for path, holder in self._holders.items()]

    def blob(self, capacity: int | None) -> Blob:
        return Blob("extra_state", self._capture, self._apply, capacity, reshard="leave")

    def _capture(self):
        tensors = {}
        value = _split(self._state(), "extra", tensors)
        if tensors.keys() != self._holders.keys():
            changed = sorted(tensors.keys() ^ self._holders.keys())
            raise errors.LayoutError(f"extra_state has other tensors than at init: {', '.join(changed)}")
        for path, tensor in tensors.items():
            self._hold(path, tensor)
        return value

    def _hold(self, path: str, tensor: torch.Tensor):
        holder = self._holders[path]
        if tensor.shape != holder.shape or tensor.dtype != holder.dtype:
            raise errors.LayoutError(f"{path} was {holder.dtype} {tuple(holder.shape)} at init and is now "
                                     f"{tensor.dtype} {tuple(tensor.shape)}")
        holder.copy_(tensor.detach())

    def _apply(self, value):
        if isinstance(self._source, dict):
            restored = _join(value, self._holders, _tensors_of(self._source))
            self._source.clear()
            self._source.update(restored)
        else:
            self._source.load_state_dict(_join(value, self._holders, {}))


def _split(value, path: str, tensors: dict):
    """The value with its tensors moved to `tensors`, by path."""
    if torch.is_tensor(value):
        tensors[path] = value
        return {_TENSOR: path}
    if isinstance(value, dict):
        return {key: _split(item, f"{path}.{key}", tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_split(item, f"{path}.{i}", tensors) for i, item in enumerate(value))
    return value


def _tensors_of(value) -> dict[str, torch.Tensor]:
    tensors = {}
    _split(value, "extra", tensors)
    return tensors


def _join(value, holders: dict, targets: dict):
    """The reverse of _split: restored contents in the tensors of `targets` where there are such, in new ones else."""
    if isinstance(value, dict):
        if value.keys() == {_TENSOR}:
            return _restored_tensor(holders[value[_TENSOR]], targets.get(value[_TENSOR]))
        return {key: _join(item, holders, targets) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_join(item, holders, targets) for item in value)
    return value


def _restored_tensor(holder: torch.Tensor, target: torch.Tensor | None) -> torch.Tensor:
    if target is None:
        return holder.clone()
    with torch.no_grad():
        return target.copy_(holder)
