# SPDX-License-Identifier: Apache-2.0
"""init and the Checkpoint that it returns: what a training program calls."""

import logging
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch.distributed import ProcessGroup

from .. import errors
from ..runtime import native
from ..runtime.notices import Notices
from ..runtime.progress_line import shown
from ..runtime.settings import FRAMEWORK, ConfigSource, Overrides, configuration, storage_format, warn_of_memory
from ..runtime.world import Oob, World, join_world
from ..state import arguments, jsonstate
from ..state.arguments import Models, Optimizers, Schedulers, Stateful
from ..state.blobs import BlobTable, alike, lender
from ..state.contents import Contents, Fence
from ..state.records import RecordTable
from ..state.registration import Given, Registration
from . import capacities, lifetime
from .loading import Loaded, fill, open_on_all
from .outside_storage import OutsideStorage
from .publish_first import publish_for
from .saving import SaveResult, Saving, step_to_load, whole_step
from .watch import Watch

log = logging.getLogger("tierckpt")


def init(*, model: Models, optimizer: Optimizers = None, scheduler: Schedulers = None,
         extra_state: dict[str, Any] | Stateful | None = None, config: ConfigSource = None, overrides: Overrides = None,
         replicate_group: ProcessGroup | str | None = None, group: ProcessGroup | None = None,
         capacity: Mapping[str, int] | None = None) -> "Checkpoint":
    """Attaches to the agent of this node and registers the training state. Collective: every rank calls it, after the
    model is wrapped and the optimizer created, and before the first step.

    model            a module: plain, wrapped in DistributedDataParallel, or sharded by fully_shard. Or several of them,
                     as a dict {"g": generator, "d": discriminator} or a list; keys or numbers then become prefixes
                     of the names of their tensors. A copy with averaged weights is one more model
    optimizer        any optimizer of torch.optim, or a ZeroRedundancyOptimizer; or several, as a dict or list. If the
                     state that an optimizer creates cannot be known in advance, the first save after its first step
                     registers it
    scheduler        an object whose state_dict() has JSON values and small tensors only; or several
    extra_state      what else is to be restored, such as the position in the data: a dict of JSON values and tensors,
                     or an object with state_dict() and load_state_dict(). Each rank has its own
    config           path of a JSON file, or a dict with the same keys
    overrides        dict of keys that override those of config
    replicate_group  process group whose ranks hold the same plain tensors, for models without DistributedDataParallel;
                     or tierckpt.PRIVATE if no other rank has a tensor of the same name
    group            process group of all ranks for the collectives of the set-up; default: the default group. If it
                     cannot send CPU tensors, the ranks connect to each other in a tree, over TCP
    capacity         {"extra_state": bytes, ...}: how much the values of "optimizer", "scheduler", "extra_state" and
                     "rng" may take as they grow; default: at least 64 KiB and four times their present size. A run that
                     loads a version with another capacity continues with that one

    Returns the Checkpoint. Raises ConfigError if the configuration is wrong; UnsupportedError or InvalidArgumentError,
    on every rank, if something cannot be saved on one of them; UnreachableError if the agent cannot be started;
    ExistsError on every rank, with nothing changed, while trainers of another start of this job are alive: the error
    names one of them, and `overrides={"takeover": "on"}` takes the job over.

    The random number generators of torch, numpy and Python are always saved. If a resumed training under
    DistributedDataParallel has to be bit-identical, call tierckpt.torch.settle_ddp at every start, also at a fresh
    one."""
    arguments.check(model, optimizer, scheduler)
    world = join_world(group)
    given = Given.of(model, optimizer, scheduler, extra_state=extra_state, replicate_group=replicate_group,
                     capacity=capacity or {})
    registration = Registration(given, world)
    contents = registration.contents()
    registration.tell_of_unsaved()
    return _open(contents, registration.fences(), world, config, overrides, registration)


def attach(contents: Contents, *, world: World, config: ConfigSource = None, overrides: Overrides = None,
           fences: Iterable[Fence] = ()) -> "Checkpoint":
    """Does what init does, for contents that the caller provides. Collective over `world`."""
    return _open(contents, fences, world, config, overrides)


def _open(contents: Contents, fences: Iterable[Fence], world: World, config: ConfigSource, overrides: Overrides,
          registration: Registration | None = None) -> "Checkpoint":
    place = Place(world, config, overrides)
    _check_format(contents, config, overrides)
    blobs = _blobs_of(contents, world)
    lifetime.close_predecessor(place.job)
    publish_for(world, contents, config, overrides)
    client = place.client()
    if world.rank == 0:
        warn_of_memory(config, overrides)
    try:
        return Checkpoint(client, contents, blobs, fences, place, registration)
    except BaseException:
        client.detach(job_done=False)
        raise


def _check_format(contents: Contents, config: ConfigSource, overrides: Overrides) -> None:
    wanted = storage_format(config, overrides)
    if wanted != contents.storage_format:
        raise errors.ConfigError(f"storage_format is {wanted}, {_FORMATS[wanted]}: take it out of the configuration")


_FORMATS = {
    "tierckpt": "which is not what this adapter was told",
    "dcp": "in which only tierckpt.dcp and tierckpt.torchtitan save",
    FRAMEWORK: "in which only tierckpt.transformers, tierckpt.megatron and tierckpt.deepspeed save",
}


def _blobs_of(contents: Contents, world: World) -> BlobTable:
    """Checks the records and blobs on all ranks before any of them attaches: ranks that attach would wait for those
    that fail. Collective."""
    def make() -> BlobTable:
        RecordTable(contents.records)
        return BlobTable(world.rank, contents.blobs)
    return world.agreed(make, "nothing is registered")


def warn_of_derived(step: int, rank: int, saved_world_size: int, names: Collection[str]) -> None:
    """Says of a new rank what it derives from another one's, if there is anything."""
    if names:
        log.warning("step %d was saved by %d ranks: %s of rank %d, which is new, is derived from that of rank %d, "
                    "except for what all ranks had alike", step, saved_world_size, " and ".join(names), rank,
                    lender(rank, saved_world_size))


class Place:
    """The job that a checkpoint belongs to, and this process's rank in it."""

    def __init__(self, world: World, config: ConfigSource = None, overrides: Overrides = None) -> None:
        self.world = world
        self.config, self.overrides = config, overrides
        self.job = lifetime.job_of(config, overrides)

    def client(self) -> native.Client:
        """Attached. Collective."""
        return native.Client(**configuration(self.config, self.overrides), rank=self.world.rank,
                              world_size=self.world.size, oob=self.world.oob)


class Checkpoint(lifetime.Closing):
    """The saved state of one training. Created by init or attach. As a context manager it closes itself, with
    job_done=False if the block raised."""

    def __init__(self, client: native.Client, contents: Contents, blobs: BlobTable, fences: Iterable[Fence],
                 place: Place | None = None, registration: Registration | None = None) -> None:
        self._place = place or Place(World(0, 1, Oob()))
        self._registration = registration
        self.restored: native.Restored | None = None
        """Of the last load: version, bytes by source, newest_step, seconds. None if nothing was loaded, or only what
        fits of another layout."""
        self.loaded: Loaded | None = None
        """Of the last load: the names of what was loaded, and of what was not."""
        self.outside_storage = OutsideStorage()
        self._misfits: dict[str, str] | None = None  # of a load of what fits
        self._lost_by: Exception | None = None  # the error after which nothing was registered
        self._enter(client, contents, blobs, list(fences))

    def _enter(self, client: native.Client, contents: Contents, blobs: BlobTable, fences: list[Fence],
               before: Saving | None = None) -> None:
        """Registers with a client that is attached. `before` are the saves of the registration before this one."""
        self._client = client
        self._fences = fences
        self._contents = contents
        self._records = RecordTable(contents.records)
        self._blobs = blobs
        self._notices = Notices(client)
        self._saving = Saving(client, contents, self._records, blobs, self._place.world, self._notices)
        if before is not None:
            self._saving.goes_on(before)
        self._records.add_to(client)
        blobs.add_to(client)
        with shown(client):
            client.register()
        contents.registered(client, self._records)
        client.set_check(weakref.WeakMethod(self._check_restored))
        client.watch = Watch(client, self._records.versions)
        self._undo_fences = [install(self.fence) for install in fences]
        self._left_open = lifetime.watch(self, client, self._place.job)
        self._notices.look()

    def _check_restored(self) -> None:
        if self._misfits is None:
            self._blobs.check(self._client)
        else:
            self._misfits = self._blobs.misfits(self._client)

    def _leave(self, job_done: bool) -> None:
        self._left_open.detach()
        while self._undo_fences:
            self._undo_fences.pop()()
        self._client.detach(job_done)

    # ---- another layout

    def refresh(self, *, model: Models | None = None, optimizer: Optimizers = None, scheduler: Schedulers = None,
                extra_state: dict[str, Any] | Stateful | None = None) -> None:
        """Registers the training state again after its layout has changed: parameter groups, adapters or buffers were
        added, parameters were unfrozen, shapes changed, optimizers were replaced, or extra_state has outgrown its
        capacity. Collective, between two steps.

        An argument takes the place of what init was given; what is left out stays. Later saves have the new layout.
        Earlier versions can still be restored in their own, and those that only memory has are published first.

        Raises on every rank, with nothing changed, if one of them has something that cannot be saved. If the agents
        cannot be attached again, nothing is registered any more, and all saves are skipped."""
        if self._registration is None:
            raise errors.UnsupportedError("this checkpoint was created by the adapter of a framework: close it and "
                                          "attach again")
        self._live()
        if self._client.health().records_torn:
            raise errors.CorruptError("the last load failed after it had begun to write, so there is no state to "
                                      "register: load a version first")
        after = self._registration.changed_to(self._registration.given.with_(model, optimizer, scheduler, extra_state))
        contents = after.contents()
        after.tell_of_unsaved()
        blobs = _blobs_of(contents, self._place.world)
        self._saving.settle()
        publish_for(self._place.world, contents, self._place.config, self._place.overrides)
        self._registration = after
        self._enter_again(contents, blobs, after.fences())

    def _enter_again(self, contents: Contents, blobs: BlobTable, fences: list[Fence]) -> None:
        """In a new term. Collective."""
        self._client.fence()
        self._leave(job_done=False)
        self._place.world.gather(None)  # no rank comes back while others have not left
        try:
            client = self._place.client()
            try:
                self._enter(client, contents, blobs, fences, self._saving)
            except BaseException:
                client.detach(job_done=False)
                raise
        except Exception as error:
            self._lost_by = error
            raise

    def _change_blobs(self, blobs: BlobTable) -> None:
        """Registers the same contents with other capacities."""
        self._enter_again(self._contents, blobs, self._fences)
        self._records.refresh(self._client)
        self._records.tell_streams(self._client)
        self._saving.loaded()

    def _live(self) -> None:
        if not self._client.is_open:
            raise errors.InvalidArgumentError("the checkpoint is closed")

    def _register_pending(self) -> None:
        """Registers optimizers whose state could not be known before their first step. Collective: part of a save that
        all ranks make, or of a load. Not after a load that failed while it copied: the versions that it tried have the
        layout that is registered, so it has to stay until a load succeeds. Saves are refused by then in any layout."""
        if (self._registration is not None and self._registration.pending and not self._client.health().records_torn
                and self._registration.ripe()):
            self.refresh()

    def _obstacle(self) -> str | None:
        """Why nothing can be saved, whatever the model holds now. Collective if optimizers are pending."""
        if self._lost_by is not None and not self._client.is_open:
            return f"nothing is registered since a refresh failed: {self._lost_by}"
        try:
            self._register_pending()
        except Exception as error:  # training continues without this save
            log.warning("the state that the optimizer has created cannot be registered, so nothing is saved: %s", error)
            return f"{type(error).__name__}: {error}"
        return None

    # ---- load

    def load_checkpoint(self, step: int | None = None, strict: bool = True) -> int | None:
        """Restores the newest version, or the one of a step, into model, optimizer, scheduler, extra_state and random
        number generators. Collective.

        Returns the step, or None if nothing was ever saved. If the newest version is damaged or lost, the one before it
        is restored; a warning and `restored.passed_over` say so. Raises, with nothing changed, UnrecoverableError or
        LayoutError if something was saved that cannot be restored, and IoError if it cannot be read now. With
        accept_fresh_start "on" in the configuration, lost versions count as never saved.

        Bytes are checked while they are copied. If they are damaged and no other copy or version can be loaded instead,
        the error says that model and optimizer hold parts of several states: training must not continue from them.
        Until a load succeeds every save raises CorruptError, and `health().records_torn` is true.

        A version of another number of ranks, or of another sharding, is restored from storage: model, optimizer and
        scheduler. Generators and extra_state belong to single ranks, so with another number of ranks they stay as they
        are, and a warning says so; see `restored.resharded` and `restored.saved_world_size`. Versions of another layout
        that only memory had were published when this one attached; if that failed, the LayoutError says how to publish
        them.

        With strict=False whatever fits is loaded, and the rest stays as it is, for example after layers were added or
        the optimizer was exchanged. Tensors are matched by name, shape and dtype, optimizer states by parameter;
        `loaded` lists both. Such a version is read from storage."""
        wanted = native.NEWEST if step is None else step_to_load(step)
        self._live()
        self._register_pending()
        self._place.world.agreed(lambda: self._make_ready_to_load(strict))
        self.restored = self.loaded = None
        self._misfits = None if strict else {}
        self._saving.loaded()
        try:
            restored, others = self._restore(wanted)
        except errors.NotFoundError:
            return None
        except errors.LayoutError as error:
            if strict or self._registration is None:
                raise self._explained(error) from error
            return self._load_what_fits(self._registration, step, error)
        finally:
            self._notices.look()
        self._put_back(restored)
        if others:
            self._make_room()
        return restored.version.step

    def _make_ready_to_load(self, strict: bool) -> None:
        """Raises if this rank cannot load: the others would wait for it."""
        self._client.fence()
        if self._registration is not None:
            self._registration.check_layout()
        elif not strict:
            raise errors.UnsupportedError(
                "strict=False works only with a checkpoint that init has created, and this one was created by the "
                "adapter of a framework")
        self._records.refresh(self._client)
        self._records.tell_streams(self._client)

    def _explained(self, error: errors.LayoutError) -> errors.LayoutError:
        """Extends the error if optimizers are pending: there are no tensors yet into which their saved state could be
        loaded."""
        if self._registration is None or not self._registration.pending:
            return error
        return errors.LayoutError("the state of an optimizer cannot be loaded before it has any, and how it makes it "
                                  "could not be found out: take one step of it before load_checkpoint, with any "
                                  f"gradients, for the load replaces weights and state ({error})")

    def _put_back(self, restored: native.Restored) -> None:
        version = restored.version
        self._records.pour()
        left_out, misfits = self._left_out(restored), self._misfits or {}
        states = {} if self._registration is None else self._registration.states_by_blob()
        names = self._blobs.put_back(
            self._client, [*left_out, *(misfits.keys() - states.keys())],
            lambda name, value: states[name].without(value, set())[0] if name in misfits else value,
            lent=self._lent(restored))
        self._contents.loaded()
        self.restored = restored
        self.loaded = Loaded(version.step, version, [*self._records.keys(), *(set(names) - misfits.keys())],
                             left_out, [], list(misfits), misfits)
        if restored.passed_over and self._client.rank == 0:
            log.warning("step %d (term %d) is loaded in place of a newer one: %s", version.step, version.term,
                        restored.passed_over)

    def _load_what_fits(self, registration: Registration, step: int | None, why: errors.LayoutError) -> int:
        place = self._place
        published = open_on_all(place.world, place.config, place.overrides, step)
        if published is None:
            raise why
        with published:
            self.loaded = fill(registration, published, place.world, strict=False, generators=True)
        self._contents.loaded()
        if self._client.rank == 0:
            log.warning("step %d was saved in another layout: what fits is loaded (%s)", self.loaded.step,
                        self.loaded.names() or "all of it")
        return self.loaded.step

    def _restore(self, wanted: int) -> tuple[native.Restored, bool]:
        """Returns what was restored, and whether that took other capacities than those that were registered.
        Collective."""
        try:
            return self._restore_here(wanted), False
        except (errors.LayoutError, errors.NoSpaceError) as error:
            before, fault = self._blobs, error
            blobs = self._blobs_like_saved(wanted)
            if blobs is None:
                raise
        try:
            self._change_blobs(blobs)
            with shown(self._client):
                return self._client.restore(wanted), True
        except errors.Error as error:
            # Torn records belong to this client alone: another one would save them as good.
            if self._client.is_open and self._client.health().records_torn:
                raise
            self._change_blobs(before)
            if isinstance(error, errors.NotFoundError):
                raise fault from error  # it was there a moment ago
            raise

    def _restore_here(self, wanted: int) -> native.Restored:
        """Restores on all ranks, or raises an error of the same class on all of them. Collective."""
        fault: errors.Error | None = None
        try:
            with shown(self._client):
                restored = self._client.restore(wanted)
        except errors.Error as error:
            fault = error
        faults = self._place.world.gather(None if fault is None else errors.as_status(fault))
        worst = [of_rank for of_rank in faults if of_rank is not None]
        if not worst:
            return restored
        # Nothing was saved, or other capacities may repair it, only if all ranks say so.
        order = (errors.NotFoundError, errors.LayoutError, errors.NoSpaceError, errors.IoError, errors.CorruptError)
        ranked = [kind.status for kind in order]
        status, text = max(worst, key=lambda one: ranked.index(one[0]) if one[0] in ranked else len(ranked))
        raise fault if fault is not None and fault.status == status else errors.from_status(status, text)

    def _blobs_like_saved(self, wanted: int) -> BlobTable | None:
        """The blobs with the capacities of what is to be loaded. None on all ranks if the capacities are not the
        obstacle, or if one rank cannot take them."""
        world, place = self._place.world, self._place
        blobs = self._blobs.like(capacities.of_saved(world, place.config, place.overrides, wanted))
        verdicts = world.gather(None if blobs is None else blobs.is_like(self._blobs))
        return None if None in verdicts or all(verdicts) else blobs

    def _make_room(self) -> None:
        """Gives blobs a larger capacity than in the loaded version, if the program has more to save by now."""
        blobs = self._blobs.with_room()
        if not all(self._place.world.gather(blobs.is_like(self._blobs))):
            self._change_blobs(blobs)

    def _left_out(self, restored: native.Restored) -> list[str]:
        """The names of the values that belong to single ranks, if the number of ranks has changed."""
        if not restored.resharded or restored.saved_world_size == self._client.world_size:
            return []
        names = self._blobs.left_out()
        if names:
            log.warning("step %d was saved by %d ranks, now there are %d: %s stay as they are", restored.version.step,
                        restored.saved_world_size, self._client.world_size, " and ".join(names))
        return names

    def _lent(self, restored: native.Restored) -> dict[str, set[str]] | None:
        """For BlobTable.put_back: what was alike on the ranks that saved this, if this rank is new. Collective."""
        rank, before = self._client.rank, restored.saved_world_size
        if not restored.resharded or self._client.world_size <= before:
            return None
        marks = self._blobs.marks(self._client)
        common = alike(self._place.world.gather(marks)[:before])
        if rank < before:
            return None
        warn_of_derived(restored.version.step, rank, before, marks)
        return common

    def outgrown(self, name: str, value: object) -> str | None:
        """For adapters: why this value of a blob cannot be saved any more; None if it can."""
        return self._blobs.outgrown(name, len(jsonstate.dumps(name, value)))

    def filled_elsewhere(self) -> None:
        """Says that the whole state was loaded from elsewhere, after a load that had failed while it copied: it can be
        saved again."""
        self._client.records_filled()

    def count_as_loaded(self) -> None:
        """For programs whose saves name what they replace: no warning if one saves and has not loaded."""
        self._saving.loaded()

    # ---- save

    def save_checkpoint_if_needed(self, step: int) -> SaveResult:
        """Saves this step if the configured intervals say so. Call it once per step, after the steps of optimizer and
        scheduler, on every rank. The result is true if a save was started. Parameters are copied in the background
        until the next optimizer step, which waits for the rest. A save that cannot be made is skipped, and the result
        says why: it does not end the training. Raises CorruptError after a load that failed while it copied, since
        training must not continue then: see load_checkpoint."""
        if self._lost_by is None and (self._registration is None or not self._registration.pending
                                      or not self._client.save_due(whole_step(step))):
            return self._saving.if_needed(step)
        obstacle = self._obstacle()
        return self._saving.if_needed(step) if obstacle is None else self._saving.skip(step, obstacle)

    def storage_due(self, step: int) -> bool:
        """Whether save_checkpoint_if_needed would save this step to storage."""
        return self._client.save_due(whole_step(step)) == native.DUE_STORAGE

    def save_checkpoint(self, step: int, to_storage: bool = False) -> SaveResult:
        """Saves this step whatever the intervals say. Every rank must save the same steps. Skips and raises as
        save_checkpoint_if_needed does."""
        obstacle = self._obstacle()
        return self._saving.explicit(step, to_storage) if obstacle is None else self._saving.skip(step, obstacle)

    def save_last(self, step: int, timeout: float = 600) -> None:
        """Ends a training: saves this step, unless it was the last one saved, and returns when it is on storage, since
        memory goes with the job. Collective. If that takes more than some seconds, a WARNING says what it waits for and
        for how long. Raises TimedOutError after `timeout` seconds; CanceledError if a rank refused the save or
        discarded it, in which case earlier versions still exist; DeniedError if another start has taken the job over,
        which the error names; CorruptError after a load that failed while it copied."""
        if self._lost_by is not None and not self._client.is_open:
            raise self._lost_by
        self._register_pending()
        self._saving.last(step, timeout)

    @property
    def on_devices(self) -> bool:
        """Whether any tensor is on a CUDA device."""
        return self._records.on_devices

    def fence(self) -> None:
        """Waits until the save under way has copied everything. Optimizer steps call it; call it yourself before you
        change parameters in any other way. For tensors on CUDA devices, the calling thread's current stream on each
        device waits and the caller does not; use wait("copied") for that. Neither a fence nor a save may be part of a
        CUDA graph: call it before the graph is replayed."""
        if self._client.is_open:
            self._records.tell_streams(self._client)
            self._client.fence()

    def wait(self, stage: str, step: int | None = None, timeout: float = 60) -> None:
        """Waits until the save of this step (default: the last one), or a newer one, is "copied", "protected" (it has
        the configured number of copies), "committed" (it can be restored) or "drained" (it is on storage). Raises
        TimedOutError after `timeout` seconds, CanceledError if the save was discarded, NotFoundError if the step was
        never saved."""
        if stage not in native.STAGES:
            raise errors.InvalidArgumentError(f"stage {stage!r} is none of {', '.join(native.STAGES)}")
        step = self._saving.last_saved if step is None else whole_step(step)
        if step is None:
            raise errors.NotFoundError("nothing has been saved yet")
        self._client.wait(step, native.STAGES[stage], int(timeout * 1000))

    # ---- what there is

    def query(self) -> native.Version | None:
        """The newest version (term, step) that can be restored now; None if there is none, or if the agents are still
        looking."""
        try:
            return self._client.query()
        except (errors.NotFoundError, errors.BusyError):
            return None

    def health(self) -> native.Health:
        """What this rank knows about the agent, storage and copies. It sends no request, so it returns at once."""
        self._notices.look()
        return self.outside_storage.shown_in(self._client.health())

    def stats(self) -> native.Stats:
        """Counts of saves and bytes of this rank, and how long saves have delayed its training."""
        return self._client.stats()

    # ---- end

    def close(self, job_done: bool = True) -> None:
        """Ends the use of this checkpoint. With job_done=True the agents exit soon and their memory is freed, so call
        save_last before. With job_done=False memory is kept for the next start, for linger_s seconds. It is also kept
        if the last save_last failed, because that step is then only in memory."""
        if job_done and self._saving.last_failed is not None and self._client.is_open:
            job_done = False
            if not isinstance(self._saving.last_failed, errors.DeniedError):  # else it is another start's job
                log.warning("the last step is not on storage (%s), so the agents keep their memory for linger_s. "
                            "Start the job again to continue from it, or run `tierckpt drain`",
                            self._saving.last_failed)
        self._leave(job_done)
        self._notices.look()
