# SPDX-License-Identifier: Apache-2.0
"""Nested values that contain tensors: taken apart into tensors by path and a rest without them, and put together."""

from collections.abc import Callable
from typing import Any

import torch

TENSOR = "$tensor"  # replaces the tensor of this path in the rest


def split(value: Any, path: str, tensors: dict[str, torch.Tensor]) -> Any:
    """The value without its tensors, which are added to `tensors` by path."""
    if torch.is_tensor(value):
        while path in tensors:  # {"a.b": x, "a": {"b": y}}
            path += "'"
        tensors[path] = value
        return {TENSOR: path}
    if isinstance(value, dict):
        return {key: split(item, f"{path}.{key}", tensors) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(split(item, f"{path}.{i}", tensors) for i, item in enumerate(value))
    return value


def join(value: Any, tensor_of: Callable[[str], Any]) -> Any:
    """The reverse of split: `tensor_of(path)` returns each tensor."""
    if isinstance(value, dict):
        if value.keys() == {TENSOR}:
            return tensor_of(value[TENSOR])
        return {key: join(item, tensor_of) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(join(item, tensor_of) for item in value)
    return value


def tensors_in(state: dict[Any, Any]) -> dict[str, torch.Tensor]:
    """The tensors in a dict, by path: {"exp_avg": ..., "old_dirs.0": ...}."""
    tensors: dict[str, torch.Tensor] = {}
    for key, value in state.items():
        split(value, str(key), tensors)
    return tensors


def rest_of(state: dict[Any, Any]) -> dict[Any, Any]:
    """The items of a dict, with the tensors in them replaced by their paths. Tensors whose path is their key are left
    out: the path alone says where they belong. A key that is a number, for instance, has another path."""
    tensors: dict[str, torch.Tensor] = {}
    parts = {key: split(value, str(key), tensors) for key, value in state.items()}
    return {key: part for key, part in parts.items() if not torch.is_tensor(state[key]) or part[TENSOR] != key}
