# SPDX-License-Identifier: Apache-2.0
"""Functions with the names and keywords of torch.sagemaker.distributed.checkpoint, of SageMaker's model parallel
library, that save with Tierckpt.

    tierckpt.sagemaker.configure(config="tierckpt.json")
    ...
    maybe_finalize_async_calls(blocking=True)
    async_save({"model": model.state_dict(), "optimizer": ...}, checkpoint_id=f"{save_dir}/step-{step}/{sub_dir}")

A state dict without DTensors is local: each rank has its own, with the same keys. The last part of checkpoint_id names
it, and process_group says which ranks hold copies of it. A state dict with DTensors is sharded: another number of ranks
can load it. Saves are not collective; loads are, and so is the first call, which registers the layout."""

import logging
import os
import re
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.tensor import DTensor

from .. import errors
from .dcp import StorageReader, Tiers, flatten

log = logging.getLogger("tierckpt")

_STEP = re.compile(r"(?:.*[-_.])?(?:(?:global_?)?steps?|checkpoint|ckpt|iter)[-_=]?(\d+)|(\d+)")


class _Job:
    """What the functions of this module share."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        self._tiers: Any = None
        self._last_step = 0
        self._calls = 0
        self._pending: list[tuple[int, int, bool]] = []  # call, step, whether to storage

    def tiers(self, state_dict: dict[str, Any], checkpoint_id: str, process_group: ProcessGroup | None) -> Tiers:
        """The tiers, attached. The first state dict gives the layout."""
        flat, paths = flatten(state_dict)
        local = not any(isinstance(value, DTensor) for value in flat.values())
        scope = f"{_last_part(checkpoint_id)}/" if local and _world_size() > 1 else ""
        if not local and process_group is not None and dist.get_world_size(process_group) != _world_size():
            raise errors.InvalidArgumentError(
                "a sharded state dict is saved and loaded by all ranks of the job, including those that hold "
                "replicas: do not pass process_group")
        if self._tiers is None:
            replicas = {"replicate_group": process_group} if scope and process_group is not None else {}
            self._tiers = Tiers(scope=scope, **{**self._arguments, **replicas})
            self._tiers.attach(state_dict)
        elif self._tiers.scope != scope:
            raise errors.LayoutError(f"this rank's state dict was {self._tiers.scope or 'sharded'} and is now "
                                     f"{scope or 'sharded'}: a job has one kind, and each rank one sub-directory")
        tiers: Tiers = self._tiers
        return tiers

    def save(self, state_dict: dict[str, Any], checkpoint_id: str,
             process_group: ProcessGroup | None) -> tuple[int, int, bool]:
        tiers = self.tiers(state_dict, checkpoint_id, process_group)
        step = _step_of(checkpoint_id) or self._last_step + 1
        storage = tiers.snapshot(*flatten(state_dict), step, None) if tiers.on else False
        self._last_step = step
        self._calls += 1
        self._pending.append((self._calls - 1, step, storage))
        return self._pending[-1]

    def finalize(self, blocking: bool) -> list[int]:
        done = []
        while self._pending:
            call, step, storage = self._pending[0]
            try:
                if not self._is_done(step, storage, blocking):
                    break
                done.append(call)
            except errors.Error as error:
                log.warning("the save of step %d failed: %s", step, error)
            self._pending.pop(0)
        return done

    def _is_done(self, step: int, storage: bool, blocking: bool) -> bool:
        if not self._tiers.on:
            return True
        if not blocking:
            return self._tiers.reached(step, storage)
        self._tiers.fence()
        self._tiers.wait(step, storage)
        return True

    def load(self, state_dict: dict[str, Any], checkpoint_id: str, process_group: ProcessGroup | None,
             planner: Any) -> None:
        tiers = self.tiers(state_dict, checkpoint_id, process_group)
        reader = tiers.reader(_step_of(checkpoint_id) or None)
        state_dict_loader.load(state_dict, storage_reader=reader, planner=planner, no_dist=bool(tiers.scope))
        self._last_step = reader.step or 0

    def close(self, job_done: bool) -> None:
        if self._tiers is not None:
            self._tiers.close(job_done)


_job: _Job | None = None


def configure(**arguments: Any) -> None:
    """Call it once, before the other functions. Takes config= and the other arguments of tierckpt.dcp.Tiers. Which
    saves go to storage is set by save_storage_interval, in steps."""
    global _job
    if _job is not None:
        raise errors.InvalidArgumentError("this job is configured already: tierckpt.sagemaker.close ends it")
    _job = _Job(arguments)


def close(job_done: bool = True) -> None:
    """Waits for pending saves and ends the use of Tierckpt. job_done=False keeps the versions in memory for the next
    start, for linger_s seconds."""
    global _job
    if _job is not None:
        _job.finalize(blocking=True)
        _job.close(job_done)
    _job = None


def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
               storage_writer: Any = None, planner: Any = None, process_group: ProcessGroup | None = None,
               coordinator_rank: int = 0, queue: Any = None, sharded_strategy: Any = None,
               wait_error_handling: bool = True, force_check_all_plans: bool = True, s3_region: Any = None,
               s3client_config: Any = None) -> None:
    """Starts a save and returns when everything that may change at once is copied. The next step of a torch optimizer
    waits for the rest.

    checkpoint_id   a path. A part of it that names a step (step-120, checkpoint-120, 120) gives the step; without one,
                    each save is the step after the one before. The last part names this rank's local state dict
                    (tp0_fsdp3). Where versions are published is set by save_dir of the configuration
    process_group   for a local state dict: the ranks that hold copies of it; default: there are none

    coordinator_rank, wait_error_handling and force_check_all_plans have no effect: there is no coordinator and there
    are no plans, and a version is saved by all ranks or not at all. Raises UnsupportedError for the other keywords."""
    _refuse(storage_writer=storage_writer, planner=planner, queue=queue, sharded_strategy=sharded_strategy,
            s3_region=s3_region, s3client_config=s3client_config)
    _configured().save(state_dict, _path(checkpoint_id), process_group)


def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_writer: Any = None,
         planner: Any = None, process_group: ProcessGroup | None = None, coordinator_rank: int = 0,
         wait_error_handling: bool = True, force_check_all_plans: bool = True, s3_region: Any = None,
         s3client_config: Any = None) -> None:
    """The same, but returns when the step is committed, or published. Raises CanceledError if the save fails."""
    async_save(state_dict, checkpoint_id=checkpoint_id, storage_writer=storage_writer, planner=planner,
               process_group=process_group, s3_region=s3_region, s3client_config=s3client_config)
    call, step, _storage = _configured()._pending[-1]
    if call not in maybe_finalize_async_calls(blocking=True):
        raise errors.CanceledError(f"step {step} was not saved (see the warning)")


def maybe_finalize_async_calls(blocking: bool = True, process_group: ProcessGroup | None = None) -> list[int]:
    """The numbers, from 0, of the async_save calls that were committed, or published, since the last time.
    blocking=True waits for all of them. A save that failed is not among them; a warning says why. Not collective."""
    return _configured().finalize(blocking)


def newest(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
           process_group: ProcessGroup | None = None) -> int | None:
    """The newest step that load would find; None if there is none, for a fresh start. Takes the arguments of load; only
    the layout of the state dict is used. Collective over all ranks of the job."""
    return _configured().tiers(state_dict, _path(checkpoint_id), process_group).newest()


def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
         storage_reader: StorageReader | None = None, planner: Any = None, process_group: ProcessGroup | None = None,
         check_keys_matched: bool = True, coordinator_rank: int = 0, s3_region: Any = None,
         s3client_config: Any = None) -> None:
    """Fills the state dict in place, from the step that checkpoint_id names, or else from the newest. A rank whose keys
    differ from those that were saved gets an error, whatever check_keys_matched says.

    storage_reader   a tierckpt.dcp.StorageReader, to load from that one only"""
    _refuse(s3_region=s3_region, s3client_config=s3client_config)
    if storage_reader is None:
        _configured().load(state_dict, _path(checkpoint_id), process_group, planner)
    elif isinstance(storage_reader, StorageReader):
        state_dict_loader.load(state_dict, checkpoint_id=checkpoint_id, storage_reader=storage_reader, planner=planner,
                               process_group=process_group)
    else:
        raise errors.UnsupportedError(f"storage_reader is a {type(storage_reader).__name__}: leave it out, or pass a "
                                      "tierckpt.dcp.StorageReader")


def _configured() -> _Job:
    if _job is None:
        raise errors.InvalidArgumentError("call tierckpt.sagemaker.configure(config=...) first")
    return _job


def _refuse(**keywords: Any) -> None:
    given = sorted(name for name, value in keywords.items() if value is not None)
    if given:
        raise errors.UnsupportedError(
            f"{', '.join(given)} cannot be used with tierckpt.sagemaker: versions are written by "
            "the agents, to save_dir of the configuration")


def _path(checkpoint_id: str | os.PathLike[str] | None) -> str:
    path = "" if checkpoint_id is None else os.fspath(checkpoint_id)
    if path.startswith("s3://"):
        raise errors.UnsupportedError(
            f"{path}: versions are published below save_dir of the configuration, not in S3; give "
            "a path, whose parts name step and sub-directory")
    return path


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part]


def _last_part(path: str) -> str:
    parts = _parts(path)
    if not parts:
        raise errors.InvalidArgumentError(
            "checkpoint_id= must end with the name of this rank's local state dict, such as "
            "tp0_ep0_fsdp3")
    return parts[-1]


def _step_of(path: str) -> int:
    """The step that a part of the path names, 0 if none does."""
    for part in reversed(_parts(path)):
        match = _STEP.fullmatch(part)
        if match:
            return int(match.group(1) or match.group(2))
    return 0


def _world_size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1
