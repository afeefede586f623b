# SPDX-License-Identifier: Apache-2.0
"""Of which places in the parameters of the ranks each whole tensor of Megatron's model consists. Megatron says so
itself, in sharded_state_dict(): parts of tensor-parallel ranks, the two halves of a gated layer on each of them, layers
by their number in the whole model, experts by their number among all. A tied tensor has one name there.

What Megatron does not describe in terms of its parameters is declared as such, and `tierckpt export` refuses it."""

import bisect
import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory

from ...runtime.world import World
from ...state import walk_model
from ...state.blobs import Blob
from ...state.export_map import Part, Whole, blob_of
from ...state.walk_optimizer import state_key

_EXPERTS = ".experts.experts."  # Megatron's name of all experts together: their number is an axis of its own
_EXPERT = ".experts.local_experts."


def blob(model: Any, in_pieces: set[str], world: World) -> Blob:
    """`model` is a contents.Model. `in_pieces` are the keys of the parameters that are saved as pieces in FP32.
    Collective."""
    tensors: list[Whole] = []
    for prefix, chunk in model.chunks.items():
        tensors += _Chunk(model, prefix, chunk, in_pieces).declared()
    return blob_of(tensors, _numbers(next(iter(model.chunks.values())).config), world)


def _numbers(config: Any) -> dict[str, int]:
    heads = config.num_attention_heads
    groups = getattr(config, "num_query_groups", None) or heads
    size = getattr(config, "kv_channels", None) or config.hidden_size // heads
    return {"heads": heads, "query_groups": groups, "head_size": size}


class _Chunk:
    """A model chunk with the addresses of its tensors."""

    def __init__(self, model: Any, prefix: str, chunk: Any, in_pieces: set[str]) -> None:
        self._chunk = chunk
        self._tensors: list[tuple[int, str, torch.Tensor]] = []  # by address, with the key of what is saved
        self._left: dict[str, int] = {}  # elements of each that no part has yet
        for parameter in walk_model.named_parameters(chunk).values():
            key = model.key(parameter)
            self._add(state_key(key, "fp32_param") if key in in_pieces else key, parameter)
        for name, module, own in walk_model.saved_buffers(walk_model.unwrap(chunk).module):
            self._add(model.buffer_key(prefix, name), getattr(module, own))
        self._tensors.sort(key=lambda item: item[0])
        self._addresses = [address for address, _, _ in self._tensors]

    def _add(self, key: str, tensor: torch.Tensor) -> None:
        if tensor.numel() > 0:
            self._tensors.append((tensor.data_ptr(), key, tensor))
            self._left[key] = tensor.numel()

    def declared(self) -> list[Whole]:
        try:
            parts = list(_sharded_tensors(self._sharded()))
        except Exception as error:
            # Saves must not fail because of a model that only an export cannot handle.
            return self._refused(f"the model's sharded_state_dict() has failed: {type(error).__name__}: {error}"[:300])
        wholes = [whole for whole in itertools.starmap(self._whole, parts) if whole is not None]
        return wholes + self._refused("Megatron's sharded_state_dict() does not say where its elements belong")

    def _refused(self, why: str) -> list[Whole]:
        """Of which the whole is not known."""
        return [Whole(key, tensor.dtype, (), [], why) for _, key, tensor in self._tensors if self._left[key] > 0]

    def _sharded(self) -> Any:
        return self._chunk.sharded_state_dict(metadata={
            "non_homogeneous_layers": True, "singleton_local_shards": False,
            "dp_cp_group": parallel_state.get_data_parallel_group(with_context_parallel=True)})

    def _whole(self, sharded: Any, address: int | None) -> Whole | None:
        """None if its data is not a part of a parameter or buffer: that of which it is a copy has elements left."""
        if address is None or sharded.data.numel() == 0:
            return None
        number = bisect.bisect_right(self._addresses, address) - 1
        if number < 0:
            return None
        begin, key, held = self._tensors[number]
        start = _start(sharded.data, held, address - begin)
        if start is None:
            return None
        self._left[key] -= sharded.data.numel()
        extra = sharded.prepend_axis_num
        part = Part(key, tuple(held.shape), start, tuple(sharded.data.shape), tuple(sharded.global_offset[extra:]))
        name, refused = _name(sharded)
        return Whole(name, sharded.data.dtype, tuple(sharded.global_shape[extra:]), [part], refused)


def _name(sharded: Any) -> tuple[str, str]:
    """The name of the whole tensor, and why it cannot be exported."""
    if sharded.flattened_range is not None:
        return sharded.key, "Megatron describes a flattened part of it"
    if sharded.prepend_axis_num == 0:
        return sharded.key, ""
    if sharded.prepend_axis_num == 1 and sharded.key.count(_EXPERTS) == 1:
        return sharded.key.replace(_EXPERTS, f"{_EXPERT}{sharded.global_offset[0]}."), ""
    return sharded.key, "Megatron puts it into a larger tensor that is not known"


def _start(part: torch.Tensor, held: torch.Tensor, byte: int) -> tuple[int, ...] | None:
    """Where a view that begins at this byte of a contiguous tensor is in it; None if it is not a box of it."""
    place, size = divmod(byte, held.element_size())
    if part.dtype != held.dtype or size or place >= held.numel() or part.dim() != held.dim():
        return None
    if not held.is_contiguous():
        return None
    start = []
    for dimension, length in enumerate(held.shape):
        stride = math.prod(held.shape[dimension + 1:])
        index, place = divmod(place, stride)
        if index + part.shape[dimension] > length:
            return None
        if part.shape[dimension] > 1 and part.stride(dimension) != stride:
            return None
        start.append(index)
    return tuple(start)


def _sharded_tensors(value: Any) -> Iterator[tuple[Any, int | None]]:
    """All of them in nested dicts and lists, with what factories make, and the address of each; None if it has none of
    its own or is a copy."""
    if isinstance(value, ShardedTensorFactory):
        # Some factories copy, which on a GPU would take memory that a training may not have: they get a tensor
        # without memory, whose views show where they begin.
        stand_in = torch.empty_strided(value.data.shape, value.data.stride(), dtype=value.data.dtype, device="meta")
        for sharded, _ in _sharded_tensors(replace(value, data=stand_in).build()):
            yield sharded, _address(sharded.data, stand_in, value.data)
    elif isinstance(value, ShardedTensor):
        here = value.data is not None and not value.data.is_meta
        yield value, value.data.data_ptr() if here else None
    elif isinstance(value, dict):
        for item in value.values():
            yield from _sharded_tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _sharded_tensors(item)


def _address(view: torch.Tensor | None, stand_in: torch.Tensor, held: torch.Tensor) -> int | None:
    """Where a view of the stand-in is in the tensor that it stands for; None for a copy."""
    if view is None or view.untyped_storage()._cdata != stand_in.untyped_storage()._cdata:
        return None
    return held.data_ptr() + int(view.storage_offset()) * held.element_size()
