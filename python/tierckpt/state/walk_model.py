# SPDX-License-Identifier: Apache-2.0
"""From a model to the records of its parameters and buffers: plain, under DistributedDataParallel, or fully_shard."""

from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch.distributed import ProcessGroup
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DataParallel, DistributedDataParallel

from .. import errors
from . import groups
from .model_tensors import ModelTensors
from .records import Record
from .sharding import Placer, rank_key


@dataclass(frozen=True)
class Model:
    """A model without its wrappers."""

    module: torch.nn.Module
    ddp_group: groups.Group | None


def unwrap(model: torch.nn.Module) -> Model:
    """Takes the wrappers off. Raises UnsupportedError for FullyShardedDataParallel and DataParallel."""
    ddp_group = None
    while True:
        if isinstance(model, torch._dynamo.OptimizedModule):
            model = model._orig_mod
        elif isinstance(model, DistributedDataParallel):
            ddp_group = groups.of_process_group(model.process_group)
            model = model.module
        elif isinstance(model, (FullyShardedDataParallel, DataParallel)):
            raise errors.UnsupportedError(f"{type(model).__name__} is not supported: use fully_shard or "
                                          "DistributedDataParallel")
        else:
            return Model(model, ddp_group)


def check_made(tensors: ModelTensors, prefix: str = "") -> None:
    """Raises UnsupportedError for tensors of lazy modules, which have no shape before a forward pass."""
    for name, tensor in (*tensors.parameters().items(), *tensors.buffers().items()):
        if torch.nn.parameter.is_lazy(tensor):
            raise errors.UnsupportedError(
                f"{prefix}{name} belongs to a lazy module and has no shape yet: run one forward pass before init, "
                "and create the optimizer after it")


def named_parameters(module: torch.nn.Module) -> dict[str, torch.nn.Parameter]:
    """Each parameter once, a tied one under its first name."""
    return ModelTensors(module).parameters()


def plain_group(model: Model, rank: int, world_size: int,
                replicate_group: ProcessGroup | str | None) -> groups.Group | None:
    """The ranks that hold the same plain tensors of the model; None if these are not known."""
    if replicate_group is not None and model.ddp_group is not None:
        raise errors.InvalidArgumentError("replicate_group= is for models without DistributedDataParallel")
    if model.ddp_group is not None:
        return model.ddp_group
    if replicate_group == groups.PRIVATE or world_size == 1:
        return groups.of_ranks([rank])
    return None if replicate_group is None else groups.of_process_group(cast("ProcessGroup", replicate_group))


def parameter_records(model: Model, placer: Placer, tensors: ModelTensors | None = None,
                      prefix: str = "") -> list[Record]:
    """Each record finds its parameter by name, as the model has it then. `tensors` are those of the model."""
    tensors = tensors or ModelTensors(model.module)
    records = []
    for name, parameter in tensors.parameters().items():
        if model.ddp_group is not None and isinstance(parameter, DTensor):
            raise errors.UnsupportedError(f"{name} is a DTensor under DistributedDataParallel, which is not supported")
        records.append(placer.record(prefix + name, partial(tensors.parameter, name), look=tensors.look))
    return [record for record in records if record is not None]


def saved_buffers(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module, str]]:
    """(name, module that has it, its name there) of each buffer that state_dict() has, a tied one once."""
    return ModelTensors(module).saved_buffers()


def _holders(model: Model, placer: Placer) -> groups.Group:
    """The ranks that have buffers of the same names, if not of the same contents."""
    if placer.plain is not None:
        return placer.plain
    meshes = [p.device_mesh for p in model.module.parameters() if isinstance(p, DTensor)]
    return groups.of_mesh(meshes[0]) if meshes else groups.of_ranks([placer.rank])


def buffer_records(model: Model, placer: Placer, prefix: str = "", tensors: ModelTensors | None = None) -> list[Record]:
    """Buffers change in the forward pass, so they are eager. Each rank changes its own, for example the running mean of
    a batch norm, so each rank saves its own. The first of the ranks saves under the plain name, which other programs
    load and which DistributedDataParallel broadcasts."""
    tensors = tensors or ModelTensors(model.module)
    first = _holders(model, placer).ranks[0] == placer.rank
    alone = placer.with_plain(groups.of_ranks([placer.rank]))
    records = []
    for name, buffer in tensors.buffers().items():
        key = prefix + name if first else rank_key(placer.rank, prefix + name)
        if isinstance(buffer, DTensor):
            key = prefix + name
        records.append(alone.record(key, partial(tensors.buffer, name), eager=True, look=tensors.look))
    return [replace(record, reshard="any") for record in records if record is not None]
