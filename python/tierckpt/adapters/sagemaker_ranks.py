# SPDX-License-Identifier: Apache-2.0
"""Which ranks hold the same shard, as torch.sagemaker.init and torch.sagemaker.state say it. Of the degrees of
parallelism, only that of sharding may be above 1."""

import json
import os
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup

from .. import errors

_LAUNCHER = "SM_HP_MP_PARAMETERS"  # what the launcher of a SageMaker job passes on
_DEGREES = ("tensor_parallel_degree", "expert_parallel_degree", "context_parallel_degree")
_NOT_HERE = "is a feature of SageMaker's own library, and Tierckpt saves the states of torch's"
_WITHOUT_EFFECT = ("activation_loading_horizon", "fsdp_cache_flush_warnings", "allow_empty_shards", "random_seed")


class Ranker:
    """Ranks r and s hold the same shard if r - s is a multiple of the shard degree."""

    def __init__(self, state: "State") -> None:
        self._state = state

    def get_rep_groups(self) -> list[list[int]]:
        """For each shard the ranks that hold it."""
        degree = self._degree()
        return [list(range(shard, _world_size(), degree)) for shard in range(degree)]

    def get_rep_rank(self, global_rank: int) -> int:
        """Which of the replicas of its shard a rank holds, from 0."""
        return global_rank // self._degree()

    def _degree(self) -> int:
        world, degree = _world_size(), self._state.hybrid_shard_degree
        if degree > world or world % (degree or 1) != 0:
            raise errors.InvalidArgumentError(f"hybrid_shard_degree is {degree}, which does not divide the {world} "
                                              "ranks of this job")
        return degree or world


class State:
    """torch.sagemaker.state."""

    tp_rank = 0
    ep_rank = 0

    def __init__(self) -> None:
        self._given: int | None = None
        self.ranker = Ranker(self)

    @property
    def hybrid_shard_degree(self) -> int:
        """How many ranks have a whole model together; 0: all."""
        if self._given is None:
            self.begin(None)
        return self._given or 0

    def begin(self, config: Any) -> None:
        self._given = _shard_degree({**_values(config), **_values(os.environ.get(_LAUNCHER))})

    def check(self, group: ProcessGroup | None) -> None:
        """Raises InvalidArgumentError if a model is sharded over other ranks than hybrid_shard_degree says: then
        get_rep_rank and get_rep_groups have said the wrong thing."""
        ranks, degree = dist.get_world_size(group), self.hybrid_shard_degree or _world_size()
        if ranks != degree:
            raise errors.InvalidArgumentError(
                f"process_group has {ranks} ranks, and hybrid_shard_degree is {degree}: call "
                f"torch.sagemaker.init({{'hybrid_shard_degree': {ranks}}}) if the model is sharded over {ranks} ranks; "
                "otherwise give FullyShardedDataParallel a device_mesh or process groups with this degree")


def init(config: dict[str, Any] | str | os.PathLike[str] | None = None) -> None:
    """As torch.sagemaker.init: a dict, the path of a JSON file, or None. Parameters that the launcher of a SageMaker
    job passes on come before these. Of all parameters, hybrid_shard_degree is used. Raises UnsupportedError for
    features that only SageMaker's library has."""
    state.begin(config)


def get_global_ranks(process_group: ProcessGroup | None) -> list[int]:
    """The ranks of a process group, as numbers of the whole job."""
    return list(range(_world_size())) if process_group is None else dist.get_process_group_ranks(process_group)


def transform(*_arguments: Any, **_keywords: Any) -> None:
    raise errors.UnsupportedError(f"torch.sagemaker.transform {_NOT_HERE} FullyShardedDataParallel")


def _values(config: Any) -> dict[str, Any]:
    if config is None or isinstance(config, dict):
        return config or {}
    text = os.fspath(config)
    try:
        if not text.lstrip().startswith("{"):
            with open(text) as file:
                text = file.read()
        values: dict[str, Any] = json.loads(text)
        return values
    except (OSError, ValueError) as error:
        raise errors.ConfigError(f"the configuration of torch.sagemaker.init cannot be read: {error}") from error


def _shard_degree(values: dict[str, Any]) -> int:
    for name, value in values.items():
        if name in _DEGREES and value != 1:
            raise errors.UnsupportedError(f"{name} {value} {_NOT_HERE} FullyShardedDataParallel")
        if name == "sm_activation_offloading" and value:
            raise errors.UnsupportedError(f"{name} {_NOT_HERE} FullyShardedDataParallel")
        if name not in (*_DEGREES, *_WITHOUT_EFFECT, "sm_activation_offloading", "hybrid_shard_degree"):
            raise errors.InvalidArgumentError(f"torch.sagemaker.init has no parameter {name}")
    degree = values.get("hybrid_shard_degree", 0)
    if not isinstance(degree, int) or degree < 0:
        raise errors.InvalidArgumentError(f"hybrid_shard_degree {degree!r} is no number of ranks")
    return degree


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


state = State()
