# SPDX-License-Identifier: Apache-2.0
"""Functions with the names and keywords of torch.sagemaker.distributed.checkpoint, of SageMaker's model parallel
library, that save with Tierckpt. Nothing has to be called before them.

    maybe_finalize_async_calls(blocking=True, process_group=replicas)
    async_save({"model": model.state_dict(), "optimizer": ...}, checkpoint_id=f"{save_dir}/{sub_dir}",
               process_group=replicas)

A state dict without DTensors and ShardedTensors is local: each rank has its own, with the same keys. The last part of
checkpoint_id names it, and process_group says which ranks hold copies of it. Any other state dict is sharded: another
number of ranks can load it, and process_group says which ranks hold it together."""

import logging
import os
from concurrent.futures import Future
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed._shard.sharded_tensor.api import ShardedTensor
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.tensor import DTensor

from .. import errors
from ..runtime.world import join_world
from . import dcp_functions
from .dcp import StorageReader, flatten
from .dcp_ids import Named, named_part
from .dcp_series import Series, Stored, stored
from .sagemaker_files import DistributedFileSystemReader, DistributedFileSystemWriter
from .sagemaker_local import series_of
from .sagemaker_ranks import state

log = logging.getLogger("tierckpt")


class _Calls:
    """The async_save calls that were not finalized yet."""

    def __init__(self) -> None:
        self._count = 0
        self._pending: list[tuple[int, str, Future[Any]]] = []  # number of the call, path, save

    def add(self, path: str, save: Future[Any]) -> None:
        self._pending.append((self._count, path, save))
        self._count += 1

    def finalize(self, blocking: bool) -> list[int]:
        done = []
        while self._pending and (blocking or self._pending[0][2].done()):
            call, path, save = self._pending.pop(0)
            fault = save.exception()
            if fault is None:
                done.append(call)
            elif isinstance(fault, errors.Error):
                log.warning("the save of %s failed: %s", path, fault)
            else:
                raise fault
        return done


_calls = _Calls()

configure = dcp_functions.configure


def close(job_done: bool | None = None) -> None:
    """Not required. Waits for the saves in the background and ends the use of Tierckpt, as tierckpt.dcp.close does."""
    global _calls
    _calls.finalize(blocking=True)
    _calls = _Calls()
    dcp_functions.close(job_done)


def async_save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
               storage_writer: Any = None, planner: Any = None, process_group: ProcessGroup | None = None,
               coordinator_rank: int = 0, queue: Any = None, sharded_strategy: Any = None,
               wait_error_handling: bool = True, force_check_all_plans: bool = True, s3_region: Any = None,
               s3client_config: Any = None) -> None:
    """Starts a save and returns when everything is copied.

    checkpoint_id   the path of a directory, or s3://bucket/path. A part of it that names a step (step-120,
                    checkpoint-120, 120) gives the step; without one, each save is the step after the one before. Its
                    last part names this rank's local state dict (tp0_fsdp3)
    storage_writer  a DistributedFileSystemWriter, in place of checkpoint_id
    process_group   for a local state dict, which all ranks save: the ranks that hold copies of it; default: there are
                    none. For a sharded one: the ranks that save it together, rank 0 among them; default: all

    coordinator_rank, wait_error_handling and force_check_all_plans have no effect: there is no coordinator and there
    are no plans, and a version is saved by all ranks or not at all. Raises UnsupportedError for the other keywords."""
    _refuse(planner=planner, queue=queue, sharded_strategy=sharded_strategy, s3_region=s3_region,
            s3client_config=s3client_config)
    name = _named(checkpoint_id, storage_writer, DistributedFileSystemWriter)
    _calls.add(name.path, _begun(state_dict, name, process_group))


def save(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_writer: Any = None,
         planner: Any = None, process_group: ProcessGroup | None = None, coordinator_rank: int = 0,
         wait_error_handling: bool = True, force_check_all_plans: bool = True, s3_region: Any = None,
         s3client_config: Any = None) -> None:
    """The same, but returns when the checkpoint is in its directory, or in memory if this step does not go to storage.
    Raises what has made the save fail."""
    _refuse(planner=planner, s3_region=s3_region, s3client_config=s3client_config)
    name = _named(checkpoint_id, storage_writer, DistributedFileSystemWriter)
    _begun(state_dict, name, process_group).result()


def _begun(state_dict: dict[str, Any], name: Named, group: ProcessGroup | None) -> Future[Any]:
    series = series_of(name, group) if _is_local(state_dict) else _series_of_sharded(name, group)
    if not series.tiers.on:
        raise errors.UnsupportedError("nothing can be saved here: see the warning above")
    save = series.start(state_dict, name)
    dcp_functions.program.started(save)
    return save


def _series_of_sharded(name: Named, group: ProcessGroup | None) -> Series:
    if group is not None:
        state.check(group)
    if dcp_functions.members(group) is not None and 0 not in dist.get_process_group_ranks(group):
        raise errors.InvalidArgumentError(
            f"process_group has no rank 0, so these ranks hold a replica, which is not saved: let those ranks save for "
            f"which torch.sagemaker.state.ranker.get_rep_rank(rank) is 0 (hybrid_shard_degree is "
            f"{state.hybrid_shard_degree})")
    return dcp_functions.program.series(name, group, False)


def maybe_finalize_async_calls(blocking: bool = True, process_group: ProcessGroup | None = None) -> list[int]:
    """The numbers, from 0, of the async_save calls that are done since the last time. blocking=True waits for all of
    them. A save that failed is not among them; a warning says why. Not collective."""
    return _calls.finalize(blocking)


def newest(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None,
           process_group: ProcessGroup | None = None) -> int | None:
    """The step that load would find; None if there is none, for a fresh start. Takes the arguments of load; only the
    layout of the state dict is used. Collective over the ranks that load."""
    name = _named(checkpoint_id, None, DistributedFileSystemReader)
    try:
        if not _is_local(state_dict):
            return _stored_for_all(name).version.step or None
        return series_of(name, process_group).newest(state_dict, name)
    except errors.NotFoundError:
        return None


def load(state_dict: dict[str, Any], *, checkpoint_id: str | os.PathLike[str] | None = None, storage_reader: Any = None,
         planner: Any = None, process_group: ProcessGroup | None = None, check_keys_matched: bool = True,
         coordinator_rank: int = 0, s3_region: Any = None, s3client_config: Any = None) -> None:
    """Fills the state dict in place, from memory or from storage. All ranks of the job call it. A rank whose keys
    differ from those that were saved gets an error, whatever check_keys_matched says. Raises NotFoundError if nothing
    was saved under this id.

    storage_reader   a DistributedFileSystemReader, in place of checkpoint_id; or a tierckpt.dcp.StorageReader, to load
                     from that one only"""
    _refuse(s3_region=s3_region, s3client_config=s3client_config)
    if isinstance(storage_reader, StorageReader):
        state_dict_loader.load(state_dict, checkpoint_id=checkpoint_id, storage_reader=storage_reader, planner=planner,
                               process_group=process_group)
        return
    name = _named(checkpoint_id, storage_reader, DistributedFileSystemReader)
    if _is_local(state_dict):
        series_of(name, process_group).load(state_dict, name, planner)
    else:
        loaded = _load_sharded(state_dict, name, process_group, planner)
        if isinstance(storage_reader, DistributedFileSystemReader):
            storage_reader.follow(loaded)


def _load_sharded(state_dict: dict[str, Any], name: Named, group: ProcessGroup | None, planner: Any) -> Any:
    """Returns the reader that was used. If several groups load, each a replica, they agree on the version."""
    if group is not None:
        state.check(group)
    if dcp_functions.members(group) is None:
        return dcp_functions.load_named(state_dict, name, group, planner=planner)
    reader = _stored_for_all(name).reader()
    state_dict_loader.load(state_dict, storage_reader=reader, planner=planner, process_group=group)
    return reader


def _stored_for_all(name: Named) -> Stored:
    """The newest that any rank finds on storage. Collective over all ranks of the job."""
    world = join_world()
    settings = dcp_functions.program.settings_now()
    found = max(world.gather(world.agreed(lambda: stored(settings, name))))
    if not found.exists:
        raise errors.NotFoundError(f"nothing was saved as {name.path}: there is no checkpoint there, and none in "
                                   "memory")
    return found


def _is_local(state_dict: dict[str, Any]) -> bool:
    sharded = any(isinstance(value, (DTensor, ShardedTensor)) for value in flatten(state_dict)[0].values())
    return not sharded and dist.is_initialized() and dist.get_world_size() > 1


def _refuse(**keywords: Any) -> None:
    given = sorted(name for name, value in keywords.items() if value is not None)
    if given:
        raise errors.UnsupportedError(
            f"{', '.join(given)} cannot be used with Tierckpt: the agents write versions. For S3 they take region, "
            "endpoint and credentials from the environment (AWS_REGION) and from AWS's own files")


def _named(checkpoint_id: str | os.PathLike[str] | None, files: Any,
           kind: type[DistributedFileSystemReader | DistributedFileSystemWriter]) -> Named:
    """What the id names, or else the reader or writer."""
    if files is not None and not isinstance(files, kind):
        raise errors.UnsupportedError(f"a {type(files).__name__} cannot be used with Tierckpt: give checkpoint_id=, or "
                                      f"a {kind.__name__}")
    if checkpoint_id is not None:
        return named_part(checkpoint_id)
    if files is None:
        raise errors.InvalidArgumentError(f"checkpoint_id= is required, or a {kind.__name__}")
    return named_part(files.path)
