# SPDX-License-Identifier: Apache-2.0
"""Local state dicts: each rank has plain tensors of its own under the same keys, and names its shard by the last part
of the checkpoint id. All ranks are one job, so a version has all shards at the same step."""

import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint import storage as torch_storage
from torch.distributed.checkpoint.planner import LoadPlanner

from .. import errors
from ..core.published import open_published
from ..runtime.native import NO_VERSION, Version
from ..state.sharding import split_rank
from . import dcp_directory
from .dcp import StorageReader
from .dcp_functions import program
from .dcp_ids import Named, of_all_shards
from .dcp_series import Memory, Series, Settings, Stored, is_begun


def series_of(name: Named, group: ProcessGroup | None) -> "LocalSeries":
    """The series of all ranks. `group` has the ranks that hold copies of this shard; None: there are none. Collective
    over all ranks of the job when it is opened."""
    holders = None if group is None else tuple(dist.get_process_group_ranks(group))
    return program.opened(("local", name.series, holders), lambda settings: LocalSeries(settings, name, group))


class LocalSeries(Series):
    """Of one process. The shard is the last part of the id; without the step, if that part names one."""

    def __init__(self, settings: Settings, name: Named, group: ProcessGroup | None) -> None:
        self._shard = os.path.basename(name.series)
        super().__init__(settings, of_all_shards(name), None, False, scope=f"{self._shard}/", replicate_group=group)
        shards = self._agreed(of_all_shards(name).series, group)
        self.makes_directory = shards.index(self._shard) == self.world.rank and not name.in_bucket

    def _agreed(self, series: str, group: ProcessGroup | None) -> list[str]:
        """The shards of all ranks, which have to be of one series, and those of a process group the same."""
        ranks = (self.world.rank,) if group is None else tuple(dist.get_process_group_ranks(group))
        found = self.world.gather((series, self._shard, ranks))
        for rank, (other, shard, group_ranks) in enumerate(found):
            if other != found[0][0]:
                raise errors.InvalidArgumentError(
                    f"rank 0 has {found[0][0]} and rank {rank} {other}: the checkpoint ids of local state dicts may "
                    "differ between ranks in their last part alone")
            alien = next((member for member in group_ranks if found[member][1] != shard), None)
            if alien is not None:
                raise errors.InvalidArgumentError(
                    f"ranks {rank} and {alien} are in one process_group, and their shards are {shard} and "
                    f"{found[alien][1]}: the group has to have the ranks that hold the same shard. If it is one of "
                    "torch.sagemaker.state.ranker, hybrid_shard_degree differs from what the model is sharded over")
        return [shard for _, shard, _ in found]

    # ---- save

    def place(self, name: Named, step: int) -> None:
        """Makes the directory of this shard: it has the manifest of the whole version, and the files of the shard."""
        with open_published(self._settings.config, step=step, overrides=self._keys) as version:
            files = {entry.file for entry in version.entries if self._is_mine(split_rank(entry.key)[1])}
            dcp_directory.place(version.info.path, name.path, files)

    def _is_mine(self, key: str) -> bool:
        return key.removeprefix("tierckpt.").startswith(self.tiers.scope)

    # ---- load

    def load(self, state_dict: dict[str, Any], name: Named, planner: LoadPlanner | None) -> None:
        """Fills the state dict with the newest step that all ranks have under their ids, in memory or on storage.
        Collective. Raises NotFoundError if there is none."""
        self._into = state_dict
        found = self._directories(state_dict, name)
        with contextlib.ExitStack() as until_loaded:
            reader: torch_storage.StorageReader
            if not found:
                reader = self.tiers.reader(name.number)
            elif any(one.of_torch for one in found):
                reader = Stored(True, NO_VERSION, name.path).reader()
            elif name.in_bucket:
                reader = found[0].reader(self.tiers.scope)
            else:
                path = until_loaded.enter_context(self._assembled([one.path for one in found]))
                reader = StorageReader(path, scope=self.tiers.scope)
            state_dict_loader.load(state_dict, storage_reader=reader, planner=planner, no_dist=True)
        self.loaded(reader)

    def newest(self, state_dict: Mapping[str, Any], name: Named) -> int | None:
        """The step that a load would find. Collective. Raises NotFoundError."""
        found = self._directories(state_dict, name)
        return (found[0].version if found else self.tiers.found(name.number)).step or name.number

    def _directories(self, state_dict: Mapping[str, Any], name: Named) -> list[Stored]:
        """Those of all ranks, if the load is one from there; none, if the tiers have this checkpoint."""
        found = self._in_the_bucket(name) if name.in_bucket else self.world.gather(
            self.world.agreed(lambda: self._directory(name)))
        if any(one.of_torch for one in found):
            return found
        newest = max(one.version for one in found)
        same = all(one.version == newest for one in found)
        memory = max(self.world.gather(self.world.agreed(lambda: self._memory_here(name, newest, same))))
        if memory == Memory.MAY_HAVE_IT and self._tiers_have_it(state_dict, name, newest):
            return []
        if newest == NO_VERSION:
            raise errors.NotFoundError(f"nothing was saved as {name.path}: no rank has a checkpoint there, and there "
                                       "is none in memory")
        if not same and memory == Memory.IN_USE:
            raise errors.BusyError(f"trainers of {name.series} are alive and save step {newest.step}: some ranks have "
                                   "its directory, others not yet. Load it again when it is complete")
        if not same:
            raise errors.LayoutError("the directories of the ranks have different versions: " + ", ".join(
                f"{one.path} {f'step {one.version.step}' if one.exists else 'none'}" for one in found))
        return found

    def _in_the_bucket(self, name: Named) -> list[Stored]:
        """The same version for all ranks, also if another one is published meanwhile."""
        versions = self.world.gather(self.world.agreed(lambda: self.in_bucket(name) if self.world.rank == 0 else None))
        return [self.stored_as(name, versions[0] or NO_VERSION)]

    def _directory(self, name: Named) -> Stored:
        found = dcp_directory.version_at(name.path)
        return Stored(dcp_directory.is_of_torch(name.path), found[1] if found else NO_VERSION, name.path)

    def _memory_here(self, name: Named, newest: Version, same: bool) -> Memory:
        """As this rank and the agent of its node know it. A directory of another job was moved to this id. Directories
        that are not the same were made when the trainers were killed: their version is whole where it is published."""
        job, version = dcp_directory.version_at(name.path) or (self._keys["job"], NO_VERSION)
        if job != self._keys["job"] or not (version == NO_VERSION or name.number in (None, version.step)):
            return Memory.HAS_NOTHING
        memory = self._memory_for(name, newest)
        interrupted = memory == Memory.HAS_NOTHING and not same and is_begun(self._keys)
        return Memory.MAY_HAVE_IT if interrupted else memory

    def _tiers_have_it(self, state_dict: Mapping[str, Any], name: Named, newest: Version) -> bool:
        self._attach(state_dict)
        return NO_VERSION < self.tiers.found(name.number) >= newest and all(
            self.world.gather(self.tiers.covers(state_dict)))

    @contextlib.contextmanager
    def _assembled(self, paths: list[str]) -> Iterator[str]:
        """A directory with the files of all shards, for the time of a load: a version is opened as a whole. Collective.
        """
        whole = os.path.join(os.path.dirname(paths[0]), ".tierckpt-load")
        self.world.agreed(lambda: dcp_directory.assemble(sorted(set(paths)), whole) if self.world.rank == 0 else None)
        try:
            yield whole
        finally:
            self.world.gather(None)
            if self.world.rank == 0:
                shutil.rmtree(whole, ignore_errors=True)
