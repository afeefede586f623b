# SPDX-License-Identifier: Apache-2.0
"""From Megatron's sharded state dict to a Description: which part of which global tensor each local one is.

Megatron makes this dictionary for its own checkpoints, so every module of it says what its tensors mean in any layout:
parts of tensor and expert parallelism, the number of a layer in the whole model, padded vocabularies, and tied weights.
It holds the tensors themselves, by which they are recognised. Imports megatron.core.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedObject, ShardedTensor, ShardedTensorFactory

from .description import Description, Local
from .parts import Part, c_strides

EXTRA_STATE = "._extra_state"


class _Unclear(Exception):
    """Why Megatron's description of a tensor cannot be used."""


def describe(chunks: dict[str, torch.nn.Module], tensors: dict[str, torch.Tensor], at: dict[str, int]) -> Description:
    """Of the model chunks of this rank, by the prefixes of their keys. `tensors`: their parameters and buffers by key.
    A tensor of which the sharded state dict has nothing is left out."""
    keys = {id(tensor): key for key, tensor in tensors.items()}
    found: dict[str, Local] = {}
    objects: dict[str, str] = {}
    try:
        for prefix, chunk in chunks.items():
            for name, value in _entries(_sharded_state_dict(chunk)):
                key = keys.get(id(getattr(value, "data", None)))
                if isinstance(value, (ShardedTensor, ShardedTensorFactory)) and key is not None:
                    found[key] = _local(key, tensors[key], value)
                elif isinstance(value, ShardedObject) and name.endswith(EXTRA_STATE):
                    objects[prefix + name.removesuffix(EXTRA_STATE)] = f"{value.key} {list(value.global_offset)}"
    except Exception as error:  # any module of the user's may be in there; training does not depend on it
        return Description(at, {}, {}, f"{type(error).__name__}: {error}")
    return Description(at, found, objects)


def _sharded_state_dict(chunk: Any) -> dict[str, Any]:
    """With the number of a layer in its name, which also suits models whose layers differ."""
    group = parallel_state.get_data_parallel_group(with_context_parallel=True)
    made: dict[str, Any] = chunk.sharded_state_dict(metadata={"non_homogeneous_layers": True, "dp_cp_group": group})
    return made


def _entries(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested dicts and lists, each with its name in the outermost one."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _entries(inner, name or str(key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _entries(inner, name)
    else:
        yield name, value


# ---- one tensor


def _local(key: str, tensor: torch.Tensor, entry: ShardedTensor | ShardedTensorFactory) -> Local:
    parts = [_whole_part(entry)] if isinstance(entry, ShardedTensor) else list(_made_parts(tensor, entry))
    if sum(part.numel for part in parts) != tensor.numel():
        raise _Unclear(f"Megatron makes {sum(part.numel for part in parts)} elements of the {tensor.numel()} of {key}")
    return Local(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), tuple(parts))


def _part(entry: ShardedTensor, start: int, strides: Iterable[int]) -> Part:
    """Dimensions that the global tensor has before those of the local one have the size one here."""
    before = entry.prepend_axis_num
    return Part(entry.key, tuple(entry.global_shape), tuple(entry.global_offset),
                (*(1,) * before, *entry.local_shape), start, (*(1,) * before, *strides), entry.allow_shape_mismatch)


def _whole_part(entry: ShardedTensor) -> Part:
    return _part(entry, 0, c_strides(tuple(entry.local_shape)))


def _made_parts(tensor: torch.Tensor, factory: ShardedTensorFactory) -> Iterator[Part]:
    """Of a tensor that is split or transposed before. A factory is applied to a tensor without memory, whose views know
    where they begin; if it copies something, it is applied to the numbers of the elements."""
    try:
        probe = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        made = _build(factory, probe)
        if all(_is_view(one.data, probe) for one in made):
            yield from (_part(one, one.data.storage_offset(), one.data.stride()) for one in made)
            return
    except Exception:  # not every function works without memory
        pass
    numbers = torch.arange(tensor.numel(), device="cpu").view(tensor.shape)
    for one in _build(factory, numbers):
        yield _part(one, *_place(factory.key, one.data))


def _build(factory: ShardedTensorFactory, tensor: torch.Tensor) -> list[ShardedTensor]:
    with torch.no_grad():
        made = factory.build_fn(factory.key, tensor, factory.replica_id, None)
    return [one for _, one in _entries(made if isinstance(made, (dict, list)) else [made])
            if isinstance(one, ShardedTensor)]


def _is_view(tensor: torch.Tensor, of: torch.Tensor) -> bool:
    return tensor.untyped_storage()._cdata == of.untyped_storage()._cdata


def _place(key: str, numbers: torch.Tensor) -> tuple[int, tuple[int, ...]]:
    """Start and strides of the view that has these numbers of elements."""
    if numbers.numel() == 0:
        return 0, c_strides(tuple(numbers.shape))
    first = numbers[(0,) * numbers.dim()]
    strides = [int(numbers.select(d, 1)[(0,) * (numbers.dim() - 1)] - first) if size > 1 else 1
               for d, size in enumerate(numbers.shape)]
    expected = first.clone()
    for d, (size, stride) in enumerate(zip(numbers.shape, strides, strict=True)):
        along = torch.arange(size) * stride
        expected = expected + along.view(*(-1 if e == d else 1 for e in range(numbers.dim())))
    if min(strides, default=1) < 1 or not torch.equal(expected.expand_as(numbers), numbers):
        raise _Unclear(f"Megatron puts the elements of {key} into another order")
    return int(first), tuple(strides)
