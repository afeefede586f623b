# SPDX-License-Identifier: Apache-2.0
"""save and load with the arguments of veScale's checkpoint functions, on tierckpt.dcp:
docs/frameworks/vescale-lines.md."""

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

from .. import errors
from . import dcp_functions
from .dcp_broadcast import BroadcastPlanner
from .dcp_functions import AsyncSave
from .dcp_ids import CheckpointPath
from .own_group import own_group
from .stateful import ModelWrapper, OptimizerWrapper

log = logging.getLogger("tierckpt")

MODEL, OPTIMIZER = "model", "optimizer"

def save(path: CheckpointPath, checkpoint_state: Mapping[str, Any], async_checkpoint: bool = False) -> AsyncSave | None:
    """Saves {"model": model, "optimizer": optimizer} as the directory `path`. With async_checkpoint=True it returns
    when everything is copied, with a future that is done when the directory is there; if that fails, an ERROR is
    logged, too. Collective."""
    state = {key: wrapper.state_dict() for key, wrapper in _wrappers(checkpoint_state).items()}
    _check(state)
    if not async_checkpoint:
        dcp_functions.save(state, checkpoint_id=path, process_group=own_group())
        return None
    future: AsyncSave = dcp_functions.async_save(state, checkpoint_id=path, process_group=own_group())
    future.add_done_callback(lambda done: _tell(path, done))
    return future


def _tell(path: CheckpointPath, done: Future[Any]) -> None:
    fault = done.exception()
    if fault is not None:
        log.error("%s was not saved: %s", path, fault)


def load(path: CheckpointPath, checkpoint_state: Mapping[str, Any], broadcast_checkpoint: bool = False) -> None:
    """Loads model and optimizer in place, with any number of ranks and any sharding. With broadcast_checkpoint=True
    each part of the directory that several ranks need is read by one of them, which sends it to the others. Collective.
    Raises NotFoundError if nothing was saved there."""
    wrappers = _wrappers(checkpoint_state)
    state = {key: wrapper.state_dict() for key, wrapper in wrappers.items()}
    _check(state)
    group = own_group()
    planner = BroadcastPlanner() if broadcast_checkpoint and group is not None else None
    dcp_functions.load(state, checkpoint_id=path, planner=planner, process_group=group)
    if planner is not None:
        planner.send()
    for key, wrapper in wrappers.items():
        wrapper.load_state_dict(state[key])


def _wrappers(checkpoint_state: Mapping[str, Any]) -> dict[str, ModelWrapper | OptimizerWrapper]:
    other = sorted(checkpoint_state.keys() - {MODEL, OPTIMIZER})
    model = checkpoint_state.get(MODEL)
    if other or model is None:
        raise errors.InvalidArgumentError(f"checkpoint_state has {', '.join(map(repr, other)) or 'no model'}: give "
                                          '{"model": model, "optimizer": optimizer}, where the optimizer may be left '
                                          "out, and save other values with tierckpt.dcp")
    if not isinstance(model, nn.Module):
        raise errors.UnsupportedError(f"model is a {type(model).__name__}: give the torch.nn.Module")
    wrappers: dict[str, ModelWrapper | OptimizerWrapper] = {MODEL: ModelWrapper(model)}
    if OPTIMIZER in checkpoint_state:
        optimizer = checkpoint_state[OPTIMIZER]
        if not isinstance(optimizer, torch.optim.Optimizer):
            raise errors.UnsupportedError(f"optimizer is a {type(optimizer).__name__}, whose parts of the parameters "
                                          "are not known: give a torch.optim.Optimizer of the model's parameters")
        wrappers[OPTIMIZER] = OptimizerWrapper(model, optimizer)
    return wrappers


def _check(state: dict[str, dict[str, Any]]) -> None:
    """Raises UnsupportedError for tensors whose place in the whole is not known."""
    for part, values in state.items():
        for key, value in values.items():
            if torch.is_tensor(value) and hasattr(value, "device_mesh") and not isinstance(value, DTensor):
                raise errors.UnsupportedError(f"{part}.{key} is a {type(value).__module__}.{type(value).__name__}, and "
                                              "only DTensors of torch.distributed.tensor are known: build the model "
                                              "with these")
