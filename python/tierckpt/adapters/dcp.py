# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint with Tierckpt's memory and storage.

    tiers = tierckpt.dcp.attach({"model": model, "optimizer": optimizer}, config="tierckpt.json")
    if tiers.newest() is not None:
        dcp.load(state, storage_reader=tiers.reader())
    ...
        dcp.save(state, storage_writer=tiers.writer(f"step-{step}"))
        response = dcp.async_save(state, storage_writer=tiers.writer(f"step-{step}"), process_group=another_group)

A checkpoint id names a step: a number, or a text or path whose last part ends with one. For a load it may be "newest".

Each rank saves all that it holds, replicas too, because memory keeps them as copies of each other. So the planner's
choice of one rank per replica is not used; of a planner only its flattened state dict is needed."""

import dataclasses
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup
from torch.distributed.checkpoint import storage as torch_storage
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import Metadata
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .. import errors
from ..core import checkpoint
from ..core.lifetime import Closing
from ..runtime import control, native
from ..runtime.settings import ConfigSource, Overrides, storage_format
from ..runtime.world import World, join_world
from ..state import dcp_files
from ..state.contents import Contents
from ..state.walk_state_dict import LEAVES, Rules, StateDict, stateless, values_among
from .api_compat import RequiredApi, usable
from .dcp_sources import other_layout, source
from .storage_wait import trouble_of

_DCP = "torch.distributed.checkpoint"
_REQUIRED_API = (
    RequiredApi(f"{_DCP}._nested_dict:flatten_state_dict", ("state_dict",)),
    RequiredApi(f"{_DCP}._nested_dict:unflatten_state_dict", ("state_dict", "mapping")),
    RequiredApi(f"{_DCP}:DefaultSavePlanner.set_up_planner",
                ("self", "state_dict", "storage_meta", "is_coordinator")),
    RequiredApi(f"{_DCP}:DefaultSavePlanner.lookup_object", ("self", "index")),
    RequiredApi(f"{_DCP}:async_save", ("state_dict", "checkpoint_id", "storage_writer", "async_stager")),
    RequiredApi(f"{_DCP}:StorageWriter.write_data", ("self", "plan", "planner")),
    RequiredApi(f"{_DCP}:StorageReader.read_data", ("self", "plan", "planner")),
    RequiredApi(f"{_DCP}:LoadPlanner.load_bytes", ("self", "read_item", "value")),
    RequiredApi("torch.optim.optimizer:register_optimizer_step_pre_hook", ("hook",)),
)
CheckpointId = int | str | os.PathLike[str]
"""A step: a number, or a text or path whose last part ends with one."""

_TRANSFORMS = ("resolve_data", "lookup_object", "transform_object")
_NEWEST = (None, "newest")
_ID = re.compile(r"(?:.*\D)?(\d{1,19})", re.DOTALL)


def step_of(checkpoint_id: CheckpointId) -> int:
    """The step that a checkpoint id names: 120, "120", "step-120" and "/anywhere/checkpoint_120" all name step 120.
    Raises InvalidArgumentError."""
    text = str(checkpoint_id) if isinstance(checkpoint_id, int) else os.path.basename(os.fspath(checkpoint_id))
    match = _ID.fullmatch(text)
    step = int(match.group(1)) if match else 0
    if not 0 < step < 2**63:
        raise errors.InvalidArgumentError(
            f"checkpoint_id {checkpoint_id!r} names no step: its last part must end with a "
            "number above 0, as step-120 does")
    return step


def _wanted(checkpoint_id: CheckpointId | None) -> int | None:
    return None if checkpoint_id in _NEWEST else step_of(checkpoint_id)


def flatten(state_dict: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Flattens a state dict as DefaultSavePlanner does: returns values and paths, both by dotted key."""
    from torch.distributed.checkpoint._nested_dict import flatten_state_dict

    return flatten_state_dict(stateless(state_dict))


# ---- the tiers of a job


def attach(state_dict: Mapping[str, Any] | None = None, **arguments: Any) -> "Tiers":
    """Makes Tiers(**arguments) and registers the layout of this state dict. It must have the tensors that training will
    have, so create the optimizer's state first; torch.distributed.checkpoint.state_dict.get_state_dict does that.
    Collective over all ranks of the job. Without a state dict the first save registers, and nothing can be loaded from
    memory before it."""
    tiers = Tiers(**arguments)
    if state_dict is not None:
        tiers.attach(state_dict)
    return tiers


class Tiers(Closing):
    """Memory and storage of one job. A process has one at most. As a context manager it closes itself, with
    job_done=False if the block raised.

    config, overrides   as for tierckpt.init
    group               process group of all ranks for the collectives of the set-up, as for tierckpt.init
    replicate_group     process group whose ranks hold the same plain tensors (not DTensors), as under
                        DistributedDataParallel; default: each rank has its own
    private             patterns of keys ("model.*.running_*") that each rank has as its own in spite of replicate_group
    pickle_leaves       True: values that are neither tensors nor JSON are pickled; default: they are refused
    capacity            bytes for the values that are not tensors; default: at least four times their present size. It
                        is a part of the layout
    timeout_s           how many seconds a save waits for its commit, or until it is published, at most
    world               the ranks, for adapters whose job has not all of them; default: what `group` says"""

    def __init__(self, *, config: ConfigSource = None, overrides: Overrides = None, group: ProcessGroup | None = None,
                 replicate_group: ProcessGroup | None = None, private: Iterable[str] = (), pickle_leaves: bool = False,
                 capacity: int | None = None, timeout_s: float = 600, scope: str = "",
                 world: World | None = None) -> None:
        self.on = usable("tierckpt.dcp", "torch", _REQUIRED_API)
        self._config, self._overrides = config, overrides
        self._group, self._world, self._capacity, self._timeout_s = group, world, capacity, timeout_s
        self._rules = Rules(replicate_group, tuple(private), pickle_leaves, scope)
        self._lock = threading.RLock()  # the library is called from one thread at a time
        self._copying = False
        self._checkpoint: checkpoint.Checkpoint | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._unhook: Callable[[], None] | None = None
        self._plan: dict[str, Any] | None = None
        self._files: dcp_files.DcpFiles | None = None

    # ---- attach

    def attach(self, state_dict: Mapping[str, Any]) -> None:
        """Registers the layout of this state dict: see tierckpt.dcp.attach. Collective."""
        if self.on:
            self._attach(*flatten(state_dict))

    def _attach(self, flat: dict[str, Any], paths: dict[str, Any]) -> None:
        if self._checkpoint is not None:
            raise errors.InvalidArgumentError("these tiers are attached already: close them first")
        self.world = self._world or join_world(self._group)
        self.walk = StateDict(flat, paths, self.world, self._rules)
        contents = self._contents()
        self._checkpoint = checkpoint.attach(contents, world=self.world, config=self._config,
                                             overrides=self._overrides)
        self._unhook = register_optimizer_step_pre_hook(lambda *_: self.fence()).remove

    def _contents(self) -> Contents:
        contents = Contents(self.walk.records, self.walk.blobs(self._capacity))
        self._files = None
        if storage_format(self._config, self._overrides) != dcp_files.FORMAT:
            return contents
        if self.scope:
            raise errors.ConfigError("storage_format is dcp, and local state dicts have the same keys for different "
                                     "things, so that torch could not read them as one checkpoint: take it out of the "
                                     "configuration")
        self._files = self.walk.dcp_files()
        return self._files.added_to(contents)

    def obstacle(self, state_dict: Mapping[str, Any]) -> str | None:
        """Why this state dict can only be saved after another attach; None if it can be saved now."""
        flat, paths = flatten(state_dict)
        obstacle = self.walk.changed(flat, paths) or self._attached().outgrown(self.scope + LEAVES,
                                                                               self.walk.leaves_of(flat))
        if obstacle is None and self._files is not None:
            obstacle = self._files.outgrown(values_among(flat))
        return obstacle

    def covers(self, state_dict: Mapping[str, Any]) -> bool:
        """Whether all tensors of this state dict are registered, in the same pieces."""
        return self.walk.covers(flatten(state_dict)[0])

    def fills(self, keys: Collection[str]) -> bool:
        """Whether these keys of a state dict name all bytes that this rank has registered as tensors."""
        return {key for key, piece in self.walk.pieces.items() if 0 not in piece.shape} <= set(keys)

    @property
    def torn(self) -> bool:
        """Whether a load has failed while it copied, so that nothing can be saved: see Checkpoint.load_checkpoint."""
        if self._checkpoint is None:
            return False
        with self._lock:
            return self._checkpoint.health().records_torn

    @property
    def attached(self) -> bool:
        """Whether a layout is registered."""
        return self._checkpoint is not None

    def filled_elsewhere(self) -> None:
        """As Checkpoint.filled_elsewhere."""
        if self._checkpoint is not None:
            with self._lock:
                self._checkpoint.filled_elsewhere()

    def count_as_loaded(self) -> None:
        """As Checkpoint.count_as_loaded."""
        if self._checkpoint is not None:
            self._checkpoint.count_as_loaded()

    @property
    def scope(self) -> str:
        """The prefix of each key of a local state dict: see tierckpt.sagemaker."""
        return self._rules.scope

    def _attached(self) -> checkpoint.Checkpoint:
        if self._checkpoint is None:
            raise errors.InvalidArgumentError(
                "nothing is registered yet: call tierckpt.dcp.attach with a state dict, or "
                "save first")
        return self._checkpoint

    # ---- what is passed to torch.distributed.checkpoint

    def writer(self, checkpoint_id: CheckpointId | None = None, to_storage: bool | None = None) -> "StorageWriter":
        """For dcp.save and dcp.async_save. to_storage=True: the save is done when it is published; False: when it is
        committed in memory; default: True for the steps on which save_storage_interval falls."""
        return StorageWriter(self, checkpoint_id, to_storage)

    def reader(self, checkpoint_id: CheckpointId | None = None) -> "StorageReader":
        """For dcp.load, which then reads memory or storage, whichever is newer. Default: the newest step."""
        return StorageReader(self._config, overrides=self._overrides, checkpoint_id=checkpoint_id, tiers=self)

    # ---- save

    def snapshot(self, flat: dict[str, Any], paths: dict[str, Any], step: int, to_storage: bool | None) -> bool:
        """Starts a save. Returns whether it goes to storage."""
        with self._lock:
            if self._checkpoint is None:
                self._attach(flat, paths)
            attached = self._attached()
            attached.fence()
            self.walk.take(flat)
            storage = attached.storage_due(step) if to_storage is None else to_storage
            attached.save_checkpoint(step, storage)
            self._copying, self._plan = True, None
        return storage

    def copied(self, result: Any) -> Future[Any]:
        """A future that has this result as soon as the save under way is copied."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="tierckpt-dcp")
        def wait() -> Any:
            self.settle()
            return result

        return self._pool.submit(wait)

    def fence(self) -> None:
        """Waits until the save under way is copied; for CUDA devices the current streams wait. Every torch optimizer
        calls it before its step. Call it yourself, or wait for staging_completion, before you change tensors in any
        other way."""
        if self._copying:
            with self._lock:
                self._attached().fence()
                self._copying = False

    def settle(self) -> None:
        """Waits until the save under way is copied, also from devices. It is for other threads than the one that
        trains: it leaves that thread's streams and fence alone."""
        if not self._attached().on_devices:
            self.fence()
        while self._attached().on_devices and not self._is_copied():
            time.sleep(0.0005)

    def _is_copied(self) -> bool:
        """Whether the save under way is copied, or was discarded."""
        with self._lock:
            try:
                self._attached().wait("copied", timeout=0)
            except errors.TimedOutError:
                return False
            except errors.CanceledError:
                pass
        return True

    def wait(self, step: int, to_storage: bool, while_healthy: bool = False) -> None:
        """Waits until this step is committed, or published. Meanwhile training may continue in another thread. Raises
        TimedOutError after timeout_s seconds, CanceledError if the save was discarded, and with while_healthy IoError
        as soon as there is trouble with storage."""
        deadline, pause = time.monotonic() + self._timeout_s, 0.001
        while not self.reached(step, to_storage):
            trouble = self._trouble() if to_storage and while_healthy else None
            if trouble is not None:
                raise errors.IoError(f"step {step} is not on storage: {trouble}")
            if time.monotonic() >= deadline:
                raise errors.TimedOutError(f"step {step} is not {'published' if to_storage else 'committed'} after "
                                           f"{self._timeout_s} s; it may still become so (tierckpt status)")
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _trouble(self) -> str | None:
        with self._lock:
            return trouble_of(self._attached())

    def reached(self, step: int, to_storage: bool) -> bool:
        """Whether this step is committed, or published. Raises CanceledError if the save was discarded."""
        try:
            with self._lock:
                self._attached().wait("drained" if to_storage else "committed", step, timeout=0)
            return True
        except errors.TimedOutError:
            return False

    # ---- what there is

    def newest(self) -> int | None:
        """The newest saved step that can be loaded; None if there is none, for a fresh start. Collective."""
        if not self.on:
            return None
        self._plan = self._ask_plan(None)
        return _found(self._plan)[1] or None

    def found(self, step: int | None) -> native.Version:
        """The version that a load of this step, or of the newest, would find; NO_VERSION if there is none. Collective.
        """
        return _found(self._ask_plan(step))

    def _ask_plan(self, step: int | None) -> dict[str, Any] | None:
        """What a restore of this step would do, according to the agent of rank 0."""
        self._attached()
        answer, fault = None, None
        if self.world.rank == 0:
            try:
                answer = control.ask(self._config, self._overrides, "plan",
                                     *([] if step is None else ["--step", str(step)]))
            except Exception as error:
                fault = error
        answer, text = self.world.gather((answer, fault and str(fault)))[0]
        if text is not None:
            raise fault or errors.Error(text)
        return answer

    def take_plan(self, step: int | None) -> dict[str, Any] | None:
        """The same; a load right after newest() uses the plan that newest() got."""
        plan, self._plan = self._plan, None
        return plan if plan is not None and step is None else self._ask_plan(step)

    def restore(self, step: int | None) -> int | None:
        """Loads into the tensors that walk.land has chosen. Collective. Returns the step, None if nothing was saved."""
        with self._lock:
            return self._attached().load_checkpoint(step)

    @property
    def restored(self) -> native.Restored | None:
        """The last load: version, bytes by source, newest_step, seconds. None if it was not a load from the memory of
        these tiers in their own layout."""
        return self._attached().restored

    def stats(self) -> native.Stats:
        """As Checkpoint.stats."""
        with self._lock:
            return self._attached().stats()

    # ---- end

    def close(self, job_done: bool = True) -> None:
        """Ends the use of these tiers. job_done=False keeps the versions in memory for the next start, for linger_s
        seconds."""
        if self._unhook is not None:
            self._unhook()
        if self._pool is not None:
            self._pool.shutdown()
        with self._lock:
            if self._checkpoint is not None:
                self._checkpoint.close(job_done)
        self._checkpoint = self._pool = self._unhook = None


def _found(answer: dict[str, Any] | None) -> native.Version:
    plan = (answer or {}).get("plan")
    return max(control.version_of(plan, "version"), other_layout(plan))


# ---- save


class StorageWriter(torch_storage.StorageWriter):
    """For dcp.save and dcp.async_save; made by Tiers.writer. It is an AsyncStager, too: dcp.async_save returns when all
    that may change at once is copied. staging_completion is done when the rest is copied, upload_completion when the
    step is committed, or published."""

    _synchronize_after_execute = False
    _while_healthy = False  # whether a save fails as soon as storage does, or waits for it

    def __init__(self, tiers: Tiers, checkpoint_id: CheckpointId | None = None, to_storage: bool | None = None) -> None:
        self._tiers = tiers
        self._to_storage = to_storage
        self._step = None if checkpoint_id is None else step_of(checkpoint_id)
        self._staged: tuple[int, bool] | None = None  # step, and whether it goes to storage
        self._written: tuple[int, bool] | None = None
        self._use_collectives = True

    def __reduce__(self) -> NoReturn:
        raise errors.UnsupportedError("the agents hold the memory, so a separate process would have nothing to save: "
                                      "use AsyncCheckpointerType.THREAD")

    def reset(self, checkpoint_id: CheckpointId | None = None) -> None:
        step = self._step if checkpoint_id is None else step_of(checkpoint_id)
        if self._staged is not None and step != self._staged[0]:
            raise errors.InvalidArgumentError(f"step {self._staged[0]} was staged, and is to be saved as step {step}")
        self._step = step

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        try:
            return step_of(checkpoint_id) > 0
        except (errors.InvalidArgumentError, TypeError):
            return False

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._use_collectives = kwargs.get("use_collectives", True)

    def prepare_local_plan(self, plan: Any) -> Any:
        return plan

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        world = self._world_size()
        if self._use_collectives and len(plans) != world:
            raise errors.InvalidArgumentError(
                f"{len(plans)} of {world} ranks save: all ranks of the job must, those that "
                "hold replicas too (a process_group must have them all)")
        return plans

    def _world_size(self) -> int:
        if self._tiers.attached:
            return self._tiers.world.size
        return dist.get_world_size() if dist.is_initialized() else 1

    def write_data(self, plan: Any, planner: Any) -> torch.futures.Future[list[torch_storage.WriteResult]]:
        if self._tiers.on:
            staged = self._staged or self._take(*flattened_by(planner))
            self._staged = None
            self._tiers.settle()
            self._tiers.wait(*staged, while_healthy=self._while_healthy)
            self._written = staged
        done: torch.futures.Future[list[torch_storage.WriteResult]] = torch.futures.Future()
        written = plan.items if self._tiers.on else ()
        done.set_result([torch_storage.WriteResult(item.index, 0, None) for item in written])
        return done

    def _take(self, flat: dict[str, Any], paths: dict[str, Any]) -> tuple[int, bool]:
        if self._step is None:
            raise errors.InvalidArgumentError(
                "the step is not known: give the writer a checkpoint id, tiers.writer('step-120'), because "
                "that of dcp.async_save comes after the state was staged")
        return self._step, self._tiers.snapshot(flat, paths, self._step, self._to_storage)

    def finish(self, metadata: Any, results: Any) -> None:
        """Does nothing: the agents commit a version as a whole."""

    # ---- AsyncStager

    @property
    def should_synchronize_after_execute(self) -> bool:
        return self._synchronize_after_execute

    def stage(self, state_dict: dict[str, Any]) -> Any:
        if not self._tiers.on:
            return state_dict
        from torch.distributed.checkpoint._nested_dict import unflatten_state_dict

        flat, paths = flatten(state_dict)
        self._staged = self._take(flat, paths)
        return self._tiers.copied(unflatten_state_dict(flat, paths))

    def synchronize_staging(self) -> None:
        self._tiers.settle()

    def close(self) -> None:
        """The tiers stay attached: Tiers.close ends them."""


def flattened_by(planner: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state dict that was given to a planner. It is read from the planner, which therefore must not change it."""
    base = DefaultSavePlanner
    known = isinstance(planner, base) and planner.flatten_state_dict
    if not known or any(getattr(type(planner), name) is not getattr(base, name) for name in _TRANSFORMS):
        raise errors.UnsupportedError(
            f"{type(planner).__name__} is not supported: only DefaultSavePlanner and planners "
            "derived from it that flatten the state dict and do not transform what is saved")
    return planner.state_dict, planner.mappings


# ---- load


class StorageReader(torch_storage.StorageReader):
    """For dcp.load. Made by Tiers.reader, it loads what the tiers have in memory or on storage. Made by hand, without
    tiers, it loads what was published, by any number of ranks, with or without a process group.

    config, overrides   those of the job; or `config` is the directory of a published version
    checkpoint_id       default: the newest. What is newer in memory than on storage is published first
    scope               without tiers: that of the local state dict to load"""

    def __init__(self, config: ConfigSource = None, *, overrides: Overrides = None,
                 checkpoint_id: CheckpointId | None = None, tiers: Tiers | None = None, scope: str = "") -> None:
        self._config, self._overrides, self._tiers = config, overrides, tiers
        self._scope = scope if tiers is None else tiers.scope
        self.reset(checkpoint_id)

    def reset(self, checkpoint_id: CheckpointId | None = None) -> None:
        self._step = _wanted(checkpoint_id)
        self._source: Any = None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return checkpoint_id in _NEWEST or StorageWriter.validate_checkpoint_id(checkpoint_id)

    @property
    def step(self) -> int | None:
        """The step that was loaded; None before a load."""
        return None if self._source is None else self._source.step

    @property
    def version(self) -> native.Version | None:
        """The same, with its term; None also if the load was one of the attached layout."""
        return None if self._source is None else self._source.version

    @property
    def directory(self) -> str | None:
        """That of the published version that was loaded; None if the load was one of the attached layout."""
        return None if self._source is None else self._source.directory

    def read_metadata(self) -> Metadata:
        if self._tiers is not None and not self._tiers.on:
            raise errors.UnsupportedError("tierckpt.dcp is off (see its warning): there is nothing to load from")
        self._source = source(self._tiers, self._config, self._overrides, self._step, self._scope)
        return self._source.metadata()

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        pass

    def prepare_local_plan(self, plan: Any) -> Any:
        return dataclasses.replace(plan, storage_data=self._source.version)

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        versions = {plan.storage_data for plan in plans}
        if len(versions) > 1:
            raise errors.BusyError(
                f"the ranks found different newest versions, {sorted(versions)} (term, step): name the "
                "step to load")
        return plans

    def read_data(self, plan: Any, planner: Any) -> torch.futures.Future[None]:
        self._source.read(plan, planner)
        done: torch.futures.Future[None] = torch.futures.Future()
        done.set_result(None)
        return done
