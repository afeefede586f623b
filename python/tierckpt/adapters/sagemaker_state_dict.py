# SPDX-License-Identifier: Apache-2.0
"""State dicts of a FullyShardedDataParallel model: the local one, without collective operations, and the optimizer's
from a checkpoint of which the model is loaded already."""

import contextlib
import enum
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed import ProcessGroup
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed._shard.sharded_tensor.shard import Shard
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint import storage as torch_storage
from torch.distributed.checkpoint._nested_dict import unflatten_state_dict
from torch.distributed.checkpoint.metadata import BytesStorageMetadata, TensorStorageMetadata
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType
from torch.distributed.fsdp._common_utils import clean_tensor_name
from torch.distributed.fsdp._runtime_utils import _reshard
from torch.distributed.tensor import DTensor
from torch.nn.modules.module import _EXTRA_STATE_KEY_SUFFIX, _IncompatibleKeys

from .. import errors


class SMStateDictType(enum.Enum):
    SM_LOCAL_STATE_DICT = enum.auto()


@contextlib.contextmanager
def sm_state_dict_type(module: nn.Module, state_dict_type: SMStateDictType | StateDictType,
                       state_dict_config: Any = None, optim_state_dict_config: Any = None) -> Iterator[None]:
    """In this context module.state_dict() returns the pieces that this rank holds, as plain tensors that share memory
    with the parameters, and module.load_state_dict takes such a dict. A StateDictType of torch is passed on to
    FullyShardedDataParallel.state_dict_type."""
    if not isinstance(state_dict_type, SMStateDictType):
        with FullyShardedDataParallel.state_dict_type(module, state_dict_type, state_dict_config,
                                                      optim_state_dict_config):
            yield
        return
    methods: dict[str, Any] = {"state_dict": lambda: _local_state_dict(module),
                               "load_state_dict": lambda state_dict, strict=True: _load(module, state_dict, strict)}
    before = {name: vars(module)[name] for name in methods if name in vars(module)}
    vars(module).update(methods)
    try:
        yield
    finally:
        for name in methods:
            del vars(module)[name]
        vars(module).update(before)


def _local_state_dict(model: nn.Module) -> dict[str, Any]:
    _reshard_all(model)
    state: dict[str, Any] = {key: tensor.detach() for key, tensor in _tensors(model)}
    state.update((key, module.get_extra_state()) for key, module in _extras(model))
    return state


def _load(model: nn.Module, state_dict: Mapping[str, Any], strict: bool) -> Any:
    _reshard_all(model)
    tensors, extras = dict(_tensors(model)), dict(_extras(model))
    missing = [key for key in (*tensors, *extras) if key not in state_dict]
    unexpected = [key for key in state_dict if key not in tensors and key not in extras]
    if strict and (missing or unexpected):
        raise errors.LayoutError(f"this local state dict is one of another model: it lacks {missing or 'nothing'}, and "
                                 f"the model has no {', '.join(unexpected) or 'key too few'}")
    for key, tensor in tensors.items():
        if key in state_dict and state_dict[key].shape != tensor.shape:
            raise errors.LayoutError(f"{key} is {tuple(tensor.shape)} here and {tuple(state_dict[key].shape)} in this "
                                     "local state dict: the shard degree has to be the same")
    with torch.no_grad():
        for key in tensors.keys() - missing:
            tensors[key].copy_(state_dict[key])
    for key in extras.keys() - missing:
        extras[key].set_extra_state(state_dict[key])
    return _IncompatibleKeys(missing, unexpected)


def _reshard_all(model: nn.Module) -> None:
    """After a forward pass without a backward pass, parameters may still be whole."""
    for module in FullyShardedDataParallel.fsdp_modules(model):
        handle = module._handle
        if handle is not None and handle.uses_sharded_strategy and not handle.is_sharded(handle.flat_param):
            _reshard(module, handle, True)


def _tensors(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for key, parameter in model.named_parameters():
        if isinstance(parameter, DTensor):
            raise errors.UnsupportedError(f"{key} is a DTensor, of fully_shard or of tensor parallelism, and "
                                          "SM_LOCAL_STATE_DICT is for FullyShardedDataParallel: save what state_dict() "
                                          "returns without it")
        yield clean_tensor_name(key), parameter
    for prefix, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            if name not in module._non_persistent_buffers_set:
                yield clean_tensor_name(f"{prefix}.{name}" if prefix else name), buffer


def _extras(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for prefix, module in model.named_modules():
        if type(module).get_extra_state is not nn.Module.get_extra_state:
            yield clean_tensor_name(f"{prefix}." if prefix else "") + _EXTRA_STATE_KEY_SUFFIX, module


def init_optim_state(optimizer: torch.optim.Optimizer, skip_empty_param: bool = False) -> None:
    """Makes the optimizer create its state, by a step with gradients of zero that changes no parameter. Does nothing if
    it has one.

    skip_empty_param   no state for parameters of which this rank holds nothing, as training has none for them"""
    if optimizer.state:
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]
                  if parameter.requires_grad and (parameter.numel() > 0 or not skip_empty_param)]
    if any(parameter.grad is not None for parameter in parameters):
        raise errors.InvalidArgumentError("there are gradients: init_optim_state has to be called before the first "
                                          "backward pass")
    rates = [group["lr"] for group in optimizer.param_groups if "lr" in group]
    with torch.no_grad():
        for parameter in parameters:
            parameter.grad = torch.zeros_like(parameter)
    try:
        for group in optimizer.param_groups:
            if "lr" in group:
                group["lr"] = torch.zeros_like(group["lr"]) if torch.is_tensor(group["lr"]) else 0.0
        optimizer.step(closure=None)
    finally:
        for group, rate in zip((group for group in optimizer.param_groups if "lr" in group), rates, strict=True):
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)


def load_sharded_optimizer_state_dict(model_state_dict: Mapping[str, Any], optimizer_key: str,
                                      storage_reader: torch_storage.StorageReader, planner: Any = None,
                                      process_group: ProcessGroup | None = None) -> dict[str, Any]:
    """As torch.distributed.checkpoint.optimizer has it, which knows no process_group. Each tensor of the optimizer's
    state is sharded as its parameter in model_state_dict is. Collective over the process group."""
    metadata = storage_reader.read_metadata()
    paths: dict[str, Any] = metadata.planner_data
    state: dict[str, Any] = {}
    for key, entry in metadata.state_dict_metadata.items():
        if paths[key][0] == optimizer_key:
            state[key] = "" if isinstance(entry, BytesStorageMetadata) else _empty(key, paths[key], entry,
                                                                                   model_state_dict, process_group)
    if not state:
        raise errors.NotFoundError(f"the checkpoint has nothing under {optimizer_key!r}")
    state_dict_loader.load(state, storage_reader=storage_reader, planner=planner, process_group=process_group)
    found: dict[str, Any] = unflatten_state_dict(state, {key: paths[key] for key in state})
    return found


def _empty(key: str, path: tuple[Any, ...], entry: TensorStorageMetadata, model_state_dict: Mapping[str, Any],
           group: ProcessGroup | None) -> Any:
    """A tensor to load into: of the parameter whose name is in the path, or a whole one if that is not sharded."""
    like, dtype = model_state_dict.get(path[2]) if len(path) > 2 else None, entry.properties.dtype
    if like is None or tuple(like.size()) != tuple(entry.size):
        return torch.empty(entry.size, dtype=dtype, device=_device_of(model_state_dict))
    if not isinstance(like, ShardedTensor):
        return torch.empty_like(like, dtype=dtype)
    shards = [Shard(torch.empty_like(shard.tensor, dtype=dtype), shard.metadata) for shard in like.local_shards()]
    return ShardedTensor._init_from_local_shards_and_global_metadata(shards, like.metadata(), process_group=group)


def _device_of(model_state_dict: Mapping[str, Any]) -> torch.device:
    first = next((value for value in model_state_dict.values() if torch.is_tensor(value)), torch.empty(0))
    if isinstance(first, ShardedTensor):
        return next((shard.tensor.device for shard in first.local_shards()), torch.device("cpu"))
    return first.device
