# SPDX-License-Identifier: Apache-2.0
"""A series of checkpoints that torch.distributed.checkpoint names by their paths: one job of Tierckpt, with one layout
at a time."""

import logging
import os
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import storage as torch_storage
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata

from .. import errors
from ..core.publish_first import newest_published
from ..core.published import open_published
from ..runtime import control
from ..runtime.native import NO_VERSION, Version
from ..runtime.settings import ConfigSource, is_url, local_save_dir, values_of
from ..runtime.world import world_of
from . import dcp_directory
from .dcp import StorageReader, StorageWriter, Tiers, flatten
from .dcp_ids import Named

log = logging.getLogger("tierckpt")

_KEPT = 2  # the newest versions beside those that ids name
_ALL = 0   # of max_ckpt_num
_TRAINERS_GONE_S = 5


@dataclass(frozen=True)
class Settings:
    """The arguments of tierckpt.dcp.configure, and their defaults without it."""

    config: ConfigSource = None
    overrides: tuple[tuple[str, Any], ...] = ()
    replicate_group: ProcessGroup | None = None
    private: tuple[str, ...] = ()
    capacity: int | None = None
    timeout_s: float = 600
    overlap: bool = False

    def values(self) -> dict[str, Any]:
        return values_of(self.config, dict(self.overrides))

    def keys_for(self, name: Named) -> dict[str, Any]:
        """The keys that override those of the configuration, for the job of one series."""
        values = self.values()
        save_dir = self._save_dir(values["save_dir"], name) if "save_dir" in values else os.path.join(name.home,
                                                                                                      ".tierckpt")
        # A directory keeps its files when the version is pruned. In a bucket the version is all there is.
        kept = _ALL if name.in_bucket and name.number is not None else _KEPT
        return {"max_ckpt_num": values.get("max_ckpt_num", kept), **dict(self.overrides), "save_dir": save_dir,
                "job": f"{values.get('job', 'dcp')}-{name.digest}"}

    def _save_dir(self, configured: Any, name: Named) -> str:
        if name.in_bucket:
            if is_url(configured):
                return str(configured)
            raise errors.ConfigError(f"checkpoint_id {name.path} is in a bucket, and save_dir {configured} is not: "
                                     "leave save_dir out, or give s3://bucket/prefix")
        save_dir = local_save_dir(configured, "a checkpoint_id is a directory that shares files with it")
        if _device(save_dir) != _device(name.home):
            raise dcp_directory.other_file_system(name.path, save_dir)
        return save_dir


def _device(path: str) -> int:
    """The file system of a path that need not exist yet."""
    path = os.path.abspath(path)
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return os.stat(path).st_dev


class Memory(IntEnum):
    """Whether a load should ask the agents, as one rank sees it. The greatest value of all ranks decides."""

    HAS_NOTHING = 0
    MAY_HAVE_IT = 1
    IN_USE = 2  # by trainers that are alive, from which an attach would take the job


@dataclass(frozen=True)
class _Found:
    """What rank 0 finds where an id points, before anything is attached."""

    version: Version = NO_VERSION
    of_torch: bool = False
    ask_memory: bool = False


@dataclass(frozen=True, order=True)
class Stored:
    """A directory with a checkpoint: of this version, or one that torch has written, which comes before all others. In
    a bucket there are versions alone, which `source` finds: a configuration, and what overrides it."""

    of_torch: bool
    version: Version
    path: str
    source: tuple[ConfigSource, dict[str, Any]] | None = field(default=None, compare=False)

    @property
    def exists(self) -> bool:
        return self.of_torch or self.version != NO_VERSION

    def reader(self, scope: str = "") -> torch_storage.StorageReader:
        if self.of_torch:
            return FileSystemReader(dcp_directory.present(self.path))
        if self.source is None:
            return DirectoryReader(self.path, scope)
        config, overrides = self.source
        return StorageReader(config, overrides=overrides, checkpoint_id=self.version.step, scope=scope)


def stored(settings: Settings, name: Named, step: int | None = None) -> Stored:
    """The newest that was saved under this id, or that step of it, on storage; what only the memory of this node has is
    published first. Its version is NO_VERSION if there is none."""
    if dcp_directory.is_of_torch(name.path):
        return Stored(True, NO_VERSION, name.path)
    keys, number = settings.keys_for(name), step or name.number
    job, version = dcp_directory.version_at(name.path) or (keys["job"], NO_VERSION)
    found = Stored(False, version, name.path)
    is_own = job == keys["job"] and (version == NO_VERSION or name.number in (None, version.step))
    if not is_own or not is_begun(keys):
        return found
    try:
        with newest_published(settings.config, keys, number) as published:
            source = (settings.config, keys) if is_url(keys["save_dir"]) else None
            return max(found, Stored(False, published.version, published.info.path, source))
    except errors.NotFoundError:
        return found


def is_begun(keys: Mapping[str, Any]) -> bool:
    """Whether a job with these keys may have saved, or begun to. In a bucket its versions say so, and its memory."""
    return is_url(keys["save_dir"]) or os.path.isdir(os.path.join(keys["save_dir"], keys["job"]))


class Series:
    """Of one process, for the ranks of one process group."""

    def __init__(self, settings: Settings, name: Named, group: ProcessGroup | None, no_dist: bool,
                 **rules: Any) -> None:
        self._settings, self._keys = settings, settings.keys_for(name)
        self.world = world_of(group, no_dist)
        self.always_to_storage = "save_storage_interval" not in settings.values()
        self.tiers = Tiers(config=settings.config, overrides=self._keys, private=settings.private, pickle_leaves=True,
                           capacity=settings.capacity, timeout_s=settings.timeout_s, world=self.world,
                           **{"replicate_group": settings.replicate_group, **rules})
        self.makes_directory = self.world.rank == 0 and not name.in_bucket
        self._pool: ThreadPoolExecutor | None = None
        self._last = 0
        self._into: Mapping[str, Any] = {}  # of the load under way

    # ---- save

    def start(self, state_dict: Mapping[str, Any], name: Named) -> Future[None]:
        """Saves without torch's functions, and returns when everything is copied; with `overlap`, the step of any torch
        optimizer waits for that. The result is there when the step is committed, or in the directory of its id. Only
        the registration of another layout is collective."""
        step = self.prepare(state_dict, name)
        to_storage = self.tiers.snapshot(*flatten(state_dict), step, self.to_storage(name))
        if not self._settings.overlap:
            self.tiers.settle()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="tierckpt-series")
        return self._pool.submit(self._finish, name, step, to_storage)

    def _finish(self, name: Named, step: int, to_storage: bool) -> None:
        self.tiers.wait(step, to_storage, while_healthy=True)
        if to_storage and self.makes_directory:
            self.place(name, step)

    def to_storage(self, name: Named) -> bool | None:
        """Of a save of this id: True, or None if the interval decides. A load prefers a directory that torch has
        written, so a save has to replace it."""
        return True if self.always_to_storage or dcp_directory.is_of_torch(name.path) else None

    def writer(self, state_dict: Mapping[str, Any], name: Named, use_collectives: bool) -> "DirectoryWriter":
        """For one save of this state dict, as prepare."""
        return DirectoryWriter(self, name, self.prepare(state_dict, name, use_collectives))

    def prepare(self, state_dict: Mapping[str, Any], name: Named, use_collectives: bool = True) -> int:
        """Returns the step of the next save; a state dict of another layout than before is registered first.
        Collective, unless use_collectives is false and the layout is registered."""
        step = self._last + 1 if name.number is None else name.number
        if "save_dir" not in self._settings.values() and not name.in_bucket:
            os.makedirs(name.home, exist_ok=True)  # as torch does it
        if self.tiers.attached and self._must_attach_again(state_dict, step, use_collectives):
            self.tiers.close(job_done=False)
        self._attach(state_dict)
        self._last = step
        return step

    def _must_attach_again(self, state_dict: Mapping[str, Any], step: int, use_collectives: bool) -> bool:
        """Whether this rank or another one has another layout, or steps go back, which only a new term may."""
        if use_collectives:
            obstacles = self.world.gather(self.world.agreed(lambda: self._obstacle(state_dict), "nothing is saved"))
        else:
            obstacles = [self._obstacle(state_dict)]
        changed = next((one for one in obstacles if one is not None), None)
        if changed is not None:
            log.info("the state dict is registered again: %s", changed)
        return changed is not None or step <= self._last

    def _obstacle(self, state_dict: Mapping[str, Any]) -> str | None:
        """As Tiers.obstacle. Another attach would save what a failed load has left as if it were good."""
        if self.tiers.torn:
            raise errors.CorruptError("nothing is saved: a load failed after it had begun to write the state dict, "
                                      "which holds parts of several states; load a checkpoint of all of it first")
        return self.tiers.obstacle(state_dict)

    def _attach(self, state_dict: Mapping[str, Any]) -> None:
        if not self.tiers.attached:
            self.tiers.attach(state_dict)
            self.tiers.count_as_loaded()
            self._last = 0

    def place(self, name: Named, step: int) -> None:
        """Makes the directory that an id names, of a step that is published."""
        with open_published(self._settings.config, step=step, overrides=self._keys) as version:
            dcp_directory.place(version.info.path, name.path)

    # ---- load

    def reader(self, state_dict: Mapping[str, Any], name: Named) -> torch_storage.StorageReader:
        """Of the newest that was saved under this id, in memory or on storage. Collective. Raises NotFoundError if
        nothing was saved, ExistsError if only the memory of trainers that are alive has it."""
        self._into = state_dict
        found: _Found = self.world.gather(self.world.agreed(lambda: self._look(name)
                                                            if self.world.rank == 0 else None))[0]
        if found.of_torch:
            log.info("%s was written by torch, and is read by it", name.path)
            return Stored(True, NO_VERSION, name.path).reader()
        if found.ask_memory and self._memory_has_it(state_dict, name, found):
            return self.tiers.reader(name.number)
        if found.version == NO_VERSION:
            raise errors.NotFoundError(f"nothing was saved as {name.path}: there is no checkpoint there, and none in "
                                       "memory")
        return self.stored_as(name, found.version).reader()

    def stored_as(self, name: Named, version: Version) -> Stored:
        """That of an id, which is on storage."""
        return Stored(False, version, name.path, (self._settings.config, self._keys) if name.in_bucket else None)

    def _look(self, name: Named) -> _Found:
        if name.in_bucket:
            version = self.in_bucket(name)
            return _Found(version, ask_memory=self._memory_for(name, version) == Memory.MAY_HAVE_IT)
        if dcp_directory.is_of_torch(name.path):
            return _Found(of_torch=True)
        job, version = dcp_directory.version_at(name.path) or (self._keys["job"], NO_VERSION)
        # A directory with another step than its number was moved there, so memory has something else under this id.
        own = job == self._keys["job"] and (version == NO_VERSION or name.number in (None, version.step))
        return _Found(version, ask_memory=own and self._memory_for(name, version) == Memory.MAY_HAVE_IT)

    def in_bucket(self, name: Named) -> Version:
        """The newest version of an id that is published there; NO_VERSION if there is none."""
        try:
            with open_published(self._settings.config, step=name.number, overrides=self._keys) as published:
                return published.version
        except errors.NotFoundError:
            return NO_VERSION

    def _memory_for(self, name: Named, version: Version) -> Memory:
        """For a load whose directory has this version. Who asks has to attach if this series is not attached. Raises as
        _may_attach_for."""
        if self.tiers.attached:
            return Memory.MAY_HAVE_IT
        if not is_begun(self._keys):
            return Memory.HAS_NOTHING  # nothing of this series was saved, nor begun
        status = self._status()
        if version == NO_VERSION:
            self._may_attach_for(name, status)
            return Memory.MAY_HAVE_IT
        committed = control.version_of(status, "committed")
        newer = committed > version and name.number in (None, committed.step)
        if status is not None and status.get("trainers"):
            log.log(logging.WARNING if newer else logging.INFO, "trainers of %s are alive: step %d is loaded from its "
                    "directory%s", name.series, version.step,
                    f", although step {committed.step} in memory is newer" if newer else "")
            return Memory.IN_USE
        of_these_ranks = status is not None and (newer or status.get("ranks") == self.world.size)
        return Memory.MAY_HAVE_IT if of_these_ranks or not self.always_to_storage else Memory.HAS_NOTHING

    def _may_attach_for(self, name: Named, status: dict[str, Any] | None) -> None:
        """For an id that is not on storage. Trainers of its series that are alive keep their job: then raises
        ExistsError if their memory has this id, else NotFoundError."""
        if status is None or not status.get("trainers"):
            return
        newest = max(control.version_of(status, "committed"), control.version_of(status, "held"))
        if newest != NO_VERSION and name.number in (None, newest.step):
            raise errors.ExistsError(f"{name.path} is not on storage: step {newest.step} of it is in the memory of "
                                     f"trainers of {name.series} that are alive. Load it after they have ended or "
                                     "have saved it to storage")
        raise errors.NotFoundError(f"nothing was saved as {name.path}: there is no checkpoint there, and trainers of "
                                   f"{name.series} are alive, whose memory has "
                                   f"{f'step {newest.step} as its newest' if newest != NO_VERSION else 'none'}")

    def _status(self) -> dict[str, Any] | None:
        """Of the agent on this node. It may take a moment to notice that the trainers of the last start have ended."""
        deadline = time.monotonic() + _TRAINERS_GONE_S
        while (status := control.ask(self._settings.config, self._keys, "status")) is not None:
            if not status.get("trainers") or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return status

    def _memory_has_it(self, state_dict: Mapping[str, Any], name: Named, found: _Found) -> bool:
        """Whether the agents have this id at least as new as its directory. Collective."""
        self._attach(state_dict)
        version = self.tiers.found(name.number)
        if version == NO_VERSION or version < found.version:
            return False
        return version > found.version or all(self.world.gather(self.tiers.covers(state_dict)))

    def loaded(self, reader: torch_storage.StorageReader | None) -> None:
        """After a load, also one by torch. It repairs what a load before it that failed has left, provided that its
        state dict had all that is registered. And steps go on from a version that was loaded; those that were saved
        since the attach still count, because a load from a directory leaves the term as it is: a step that is not above
        them is saved after another attach."""
        into, self._into = self._into, {}
        if self.tiers.torn and self.tiers.fills(flatten(into)[0]):
            self.tiers.filled_elsewhere()
        if isinstance(reader, StorageReader) and self.tiers.attached:
            self._last = max(self._last, reader.step or 0)

    # ---- end

    def close(self, job_done: bool | None = None) -> None:
        """None: the agents end if they hold nothing that is not on storage."""
        if self._pool is not None:
            self._pool.shutdown()
        if self.tiers.attached:
            stats = self.tiers.stats()
            done = stats.published_step >= stats.committed_step if job_done is None else job_done
            self.tiers.close(done)


class DirectoryReader(StorageReader):
    """Reads a directory with a checkpoint, which a save of another program may replace at any time."""

    _ATTEMPTS, _PAUSE_S = 5, 0.2  # an attempt fails only if a save moves directories just then

    def __init__(self, path: str, scope: str = "") -> None:
        super().__init__(path, scope=scope)
        self._path = path

    def read_metadata(self) -> Metadata:
        for _ in range(self._ATTEMPTS):
            self._config = dcp_directory.present(self._path)
            try:
                return super().read_metadata()
            except errors.NotFoundError as error:
                fault = error
            if dcp_directory.version_at(self._path) is None:
                raise fault
            time.sleep(self._PAUSE_S)
        raise errors.BusyError(f"{self._path} is being replaced by another program: load it again ({fault})") from fault


class DirectoryWriter(StorageWriter):
    """Saves one state dict, and makes the directory of its id as soon as it is on storage."""

    _while_healthy = True

    def __init__(self, series: Series, name: Named, step: int) -> None:
        super().__init__(series.tiers, step, series.to_storage(name))
        self._series, self._name = series, name

    def finish(self, metadata: Any, results: Any) -> None:
        if self._written is not None and self._written[1] and self._series.makes_directory:
            self._series.place(self._name, self._written[0])
