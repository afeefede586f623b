# SPDX-License-Identifier: Apache-2.0
"""save, async_save and load with the arguments of torch.distributed.checkpoint, and nothing before them.

    import tierckpt.dcp as dcp          # instead of torch.distributed.checkpoint

    dcp.save(state_dict, checkpoint_id="runs/step-100")
    dcp.load(state_dict, checkpoint_id="runs/step-100")

docs/frameworks/dcp-lines.md says what reaches storage, and when."""

import concurrent.futures
import importlib
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Any, TypeVar

import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint import storage as torch_storage
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlanner, SavePlanner
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType

from .. import errors
from ..runtime.settings import ConfigSource, Overrides
from .dcp import StorageWriter
from .dcp_ids import CheckpointPath, Named, named
from .dcp_series import Series, Settings
from .inner_reader import StateDictReader
from .own_group import own_group

log = logging.getLogger("tierckpt")

_SERIES_AT_ONCE = 4
_S = TypeVar("_S", bound=Series)


def of_torch(name: str) -> Any:
    """Whatever else torch.distributed.checkpoint has, for programs that import tierckpt.dcp in its place. Not its
    __path__ and the like: with them `import tierckpt.dcp.metadata` would make second copies of torch's modules."""
    if name.startswith("__"):
        raise AttributeError(f"module 'tierckpt.dcp' has no attribute {name!r}")
    return getattr(importlib.import_module("torch.distributed.checkpoint"), name)


class _Program:
    """What the functions of this module share: the series that this process has open, the one used last at the end."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self._series: OrderedDict[tuple[Any, ...], Series] = OrderedDict()
        self._uploads: set[Future[Any]] = set()

    def series(self, name: Named, group: ProcessGroup | None, no_dist: bool) -> Series:
        return self.opened((name.series, members(group), no_dist),
                           lambda settings: Series(settings, name, group, no_dist))

    def opened(self, key: tuple[Any, ...], make: Callable[[Settings], _S]) -> _S:
        """The series of this key, which is made if it is not open."""
        self._settle()
        if key not in self._series:
            self._make_room()
            self._series[key] = make(self.settings_now())
        self._series.move_to_end(key)
        series: Any = self._series[key]
        return series

    def settings_now(self) -> Settings:
        if self.settings is None:
            self.settings = Settings(config=os.environ.get("TIERCKPT_CONFIG"))
        return self.settings

    def _settle(self) -> None:
        """Waits for the saves in the background: their threads use the process group that the next call uses, too."""
        concurrent.futures.wait(self._uploads)
        self._uploads.clear()

    def _make_room(self) -> None:
        for key in [key for key, series in self._series.items() if not series.tiers.attached]:
            del self._series[key]  # it holds nothing
        if len(self._series) == _SERIES_AT_ONCE:
            (series, *_), oldest = self._series.popitem(last=False)
            log.warning("%d series of checkpoint ids are in use, each with memory of its own: %s is closed. Ids are "
                        "one series if they differ only in a number at the end", _SERIES_AT_ONCE + 1, series)
            oldest.close()

    def started(self, upload: Future[Any]) -> None:
        self._uploads.add(upload)

    def close(self, job_done: bool | None) -> None:
        self._settle()
        while self._series:
            self._series.popitem()[1].close(job_done)
        self.settings = None

    @property
    def in_use(self) -> bool:
        return bool(self._series)


def members(group: ProcessGroup | None) -> tuple[int, ...] | None:
    """The ranks of a group, None for all of them."""
    if group is None or dist.get_world_size(group) == dist.get_world_size():
        return None
    return tuple(dist.get_process_group_ranks(group))


program = _Program()


def configure(config: ConfigSource = None, *, overrides: Overrides = None, replicate_group: ProcessGroup | None = None,
              private: Iterable[str] = (), capacity: int | None = None, timeout_s: float = 600,
              overlap: bool = False) -> None:
    """Not required. Call it before the first save or load, to have other settings than the defaults.

    config, overrides   keys of the configuration; without `config` that of $TIERCKPT_CONFIG, if it is set. Without
                        save_dir, versions are beside the checkpoints, in the hidden directory .tierckpt. Without
                        save_storage_interval every save goes to storage
    replicate_group, private, capacity, timeout_s   as for tierckpt.dcp.Tiers
    overlap             True: async_save returns before everything is copied; the step of any torch optimizer waits for
                        the rest, and before other changes of tensors the program must (response.staging_completion)

    Raises InvalidArgumentError after the first save or load."""
    if program.in_use:
        raise errors.InvalidArgumentError("tierckpt.dcp.configure comes before the first save and load: call "
                                          "tierckpt.dcp.close first")
    source = os.environ.get("TIERCKPT_CONFIG") if config is None else config
    program.settings = Settings(source, tuple((overrides or {}).items()), replicate_group, tuple(private), capacity,
                                 timeout_s, overlap)


def close(job_done: bool | None = None) -> None:
    """Not required. Waits for the saves in the background and ends the use of Tierckpt. By default memory is freed if
    everything that it holds is on storage. job_done=True frees it, False keeps it for linger_s seconds, as it is kept
    if a program does not call this."""
    program.close(job_done)


def save(state_dict: dict[str, Any], *, checkpoint_id: CheckpointPath | None = None,
         storage_writer: torch_storage.StorageWriter | None = None, planner: SavePlanner | None = None,
         process_group: ProcessGroup | None = None, no_dist: bool = False, use_collectives: bool = True) -> Metadata:
    """As torch.distributed.checkpoint.save. Returns when the checkpoint is in memory and, unless save_storage_interval
    says otherwise, in the directory checkpoint_id. A storage_writer saves by itself, without Tierckpt."""
    options: dict[str, Any] = {"planner": planner, "process_group": process_group, "no_dist": no_dist,
                               "use_collectives": use_collectives}
    writer = storage_writer
    if checkpoint_id is not None and storage_writer is None:
        name = named(checkpoint_id)
        series = program.series(name, process_group, no_dist)
        if series.tiers.on:
            writer, checkpoint_id = series.writer(state_dict, name, use_collectives), None
    return state_dict_saver.save(state_dict, checkpoint_id=_as_torch_has_it(checkpoint_id), storage_writer=writer,
                                 **options)


def _as_torch_has_it(checkpoint_id: CheckpointPath | None) -> str | os.PathLike[str] | None:
    return str(checkpoint_id) if isinstance(checkpoint_id, int) else checkpoint_id


class AsyncSave(Future[Any]):
    """What async_save returns: a future that is done when the save is, with the attributes of an AsyncSaveResponse."""

    staging_completion: Future[Any]

    @property
    def upload_completion(self) -> "AsyncSave":
        return self


def async_save(state_dict: dict[str, Any], *, checkpoint_id: CheckpointPath | None = None,
               storage_writer: torch_storage.StorageWriter | None = None,
               planner: SavePlanner | None = None, process_group: ProcessGroup | None = None,
               async_checkpointer_type: AsyncCheckpointerType = AsyncCheckpointerType.THREAD, async_stager: Any = None,
               no_dist: bool = False, use_collectives: bool = True) -> Any:
    """As torch.distributed.checkpoint.async_save: returns when everything is copied, after the save before it is done.
    The future is done when save would return. A storage_writer saves by itself, without Tierckpt unless it is one of
    its own."""
    options: dict[str, Any] = {"planner": planner, "process_group": process_group, "no_dist": no_dist,
                               "use_collectives": use_collectives}
    own = checkpoint_id is not None and storage_writer is None
    name = named(checkpoint_id) if own and checkpoint_id is not None else None
    series = None if name is None else program.series(name, process_group, no_dist)
    if name is None or series is None or not series.tiers.on:
        if isinstance(storage_writer, StorageWriter) and process_group is None and not no_dist:
            options["process_group"] = own_group()
        return state_dict_saver.async_save(
            state_dict, checkpoint_id=_as_torch_has_it(checkpoint_id), storage_writer=storage_writer,
            async_checkpointer_type=async_checkpointer_type, async_stager=async_stager, **options)
    _refuse(async_checkpointer_type, async_stager)
    if process_group is None and not no_dist:
        options["process_group"] = own_group()
    writer = series.writer(state_dict, name, use_collectives)
    response: Any = state_dict_saver.async_save(state_dict, storage_writer=writer, **options)
    if not (program.settings and program.settings.overlap):
        response.staging_completion.result()
    program.started(response.upload_completion)
    return _followed(response)


def _refuse(kind: AsyncCheckpointerType, stager: Any) -> None:
    if kind != AsyncCheckpointerType.THREAD or stager is not None:
        raise errors.UnsupportedError("the agents of Tierckpt take the place of AsyncCheckpointerType.PROCESS and of "
                                      "async_stager: leave them out, or pass a storage_writer of torch")


def _followed(response: Any) -> AsyncSave:
    answer = AsyncSave()
    answer.staging_completion = response.staging_completion
    answer.set_running_or_notify_cancel()

    def done(upload: Future[Any]) -> None:
        fault = upload.exception()
        if fault is None:
            answer.set_result(upload.result())
        else:
            answer.set_exception(fault)

    response.upload_completion.add_done_callback(done)
    return answer


def load(state_dict: dict[str, Any], *, checkpoint_id: CheckpointPath | None = None,
         storage_reader: torch_storage.StorageReader | None = None, planner: LoadPlanner | None = None,
         process_group: ProcessGroup | None = None, no_dist: bool = False) -> None:
    """As torch.distributed.checkpoint.load: fills the state dict in place, from memory where that has the checkpoint,
    else from its directory. A directory that torch has written is read by torch. Raises NotFoundError if nothing was
    saved under this id. A storage_reader loads by itself."""
    options: dict[str, Any] = {"planner": planner, "process_group": process_group, "no_dist": no_dist}
    if checkpoint_id is None or storage_reader is not None:
        if isinstance(storage_reader, StateDictReader):
            storage_reader.attach(state_dict)
        state_dict_loader.load(state_dict, checkpoint_id=_as_torch_has_it(checkpoint_id),
                               storage_reader=storage_reader, **options)
        if isinstance(storage_reader, StateDictReader):
            storage_reader.loaded()
        return
    load_named(state_dict, named(checkpoint_id), **options)


def load_named(state_dict: dict[str, Any], name: Named, process_group: ProcessGroup | None = None,
               no_dist: bool = False, planner: LoadPlanner | None = None) -> torch_storage.StorageReader | None:
    """The same; returns what has loaded, None if that was torch alone."""
    options: dict[str, Any] = {"planner": planner, "process_group": process_group, "no_dist": no_dist}
    series = program.series(name, process_group, no_dist)
    if not series.tiers.on:
        state_dict_loader.load(state_dict, checkpoint_id=name.path, **options)
        return None
    reader = series.reader(state_dict, name)
    state_dict_loader.load(state_dict, storage_reader=reader, **options)
    series.loaded(reader)
    return reader
