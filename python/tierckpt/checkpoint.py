# SPDX-License-Identifier: Apache-2.0
"""init and the Checkpoint that it returns: what a training program calls."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from . import _native, errors, walk_model
from .blobs import Blob, BlobTable
from .extra import Extra
from .handover import publish_for
from .oob import World, join_world
from .placer import Placer
from .published import configuration
from .records import Record, RecordTable
from .rng import Rng
from .walk_optimizer import OptimizerState

log = logging.getLogger("tierckpt")

_INIT_BLOBS = ("optimizer", "scheduler", "extra_state", "rng")


def init(*, model, optimizer=None, scheduler=None, extra_state=None, config=None, overrides=None,
         replicate_group=None, group=None, capacity=None) -> "Checkpoint":
    """Attaches to the agent of this node and registers the training state. Collective: every rank calls it, after
    the model is wrapped and the optimizer made, and before the first step.

    model            a module; plain, or wrapped in DistributedDataParallel, or sharded by fully_shard
    optimizer        Adam, AdamW, SGD; any other once it has done its first step; or a ZeroRedundancyOptimizer
    scheduler        anything whose state_dict() has JSON values only
    extra_state      a dict of JSON values and tensors, or an object with state_dict() and load_state_dict(): what
                     else is to come back, such as the data position. Private to each rank
    config           path of a JSON file, or a dict with the same keys
    overrides        dict of keys that win over those of config
    replicate_group  process group whose ranks hold copies of the plain tensors, where no DistributedDataParallel
                     says so; or tierckpt.PRIVATE if no other rank has a tensor of the same name
    group            process group over all ranks for the set-up collectives; default: the default group, or a gloo
                     group if that one carries no CPU tensors
    capacity         {"extra_state": bytes, ...}: room for the growth of "optimizer", "scheduler", "extra_state" or
                     "rng" values; default: at least four times their size now and 64 KiB. It is a part of the
                     layout: keep it the same in later runs that are to load what this one saves

    The random number generators of torch, numpy and Python are always saved. A training that is to resume with equal
    bits under DistributedDataParallel needs tierckpt.torch.settle_ddp, at a fresh start too.
    """
    world = join_world(group)
    bare = walk_model.unwrap(model)
    placer = Placer(world.rank, walk_model.plain_group(bare, world.rank, world.size, replicate_group))
    rng = Rng()
    extra = None if extra_state is None else Extra(extra_state)
    records = walk_model.parameter_records(bare, placer) + walk_model.buffer_records(bare, placer)
    state = None
    if optimizer is not None:
        state = OptimizerState(optimizer, walk_model.named_parameters(bare.module), placer)
        records += state.records()
    records += extra.records(placer) if extra else []
    records.append(rng.record(placer))
    contents = Contents(records, _blobs(state, scheduler, extra, rng, capacity or {}),
                        check=state.check if state else _nothing)
    fences = [] if optimizer is None else [before_optimizer_step(optimizer)]
    return attach(contents, world=world, config=config, overrides=overrides, fences=fences)


def _nothing():
    pass


@dataclass(frozen=True)
class Contents:
    """What a checkpoint is made of. Adapters of frameworks make it; init makes it for plain PyTorch."""

    records: list[Record]
    blobs: list[Blob]  # in the order in which they are put back, after the records
    check: Callable[[], None] = _nothing  # before each save; raises if there is state that was not registered
    loaded: Callable[[], None] = _nothing  # after all was put back: what the framework derives from it is made again


Fence = Callable[[Callable[[], None]], Callable[[], None]]
"""Puts a function (Checkpoint.fence) where it is called right before the records change; returns what undoes that."""


def before_optimizer_step(optimizer: torch.optim.Optimizer) -> Fence:
    """The fence of whatever is changed by a torch optimizer alone."""
    return lambda fence: optimizer.register_step_pre_hook(lambda *_: fence()).remove


def attach(contents: Contents, *, world: World, config=None, overrides=None, fences: Iterable[Fence] = ()
           ) -> "Checkpoint":
    """What init does, for contents that somebody else has made. Collective over `world`."""
    publish_for(world, config, overrides)
    client = _native.Client(**configuration(config, overrides), rank=world.rank, world_size=world.size,
                            oob=world.oob)
    try:
        return Checkpoint(client, contents, BlobTable(world.rank, contents.blobs), fences)
    except BaseException:
        client.detach(job_done=False)
        raise


def _blobs(state, scheduler, extra, rng, capacity: dict) -> list[Blob]:
    """In the order in which they are put back: the generators last, as the others may draw from them."""
    unknown = capacity.keys() - set(_INIT_BLOBS)
    if unknown:
        raise errors.InvalidArgument(f"capacity= has {sorted(unknown)}, it knows {list(_INIT_BLOBS)}")
    blobs = []
    if state is not None:
        blobs.append(Blob("optimizer", state.capture, state.apply, capacity.get("optimizer", state.room()),
                          reshard="any"))
    if scheduler is not None:
        blobs.append(Blob("scheduler", scheduler.state_dict, scheduler.load_state_dict, capacity.get("scheduler"),
                          reshard="any"))
    if extra is not None:
        blobs.append(extra.blob(capacity.get("extra_state")))
    blobs.append(rng.blob(capacity.get("rng")))
    return blobs


class Checkpoint:
    """Made by init or attach. As a context manager it closes itself, with job_done=False if the block raised."""

    def __init__(self, client: _native.Client, contents: Contents, blobs: BlobTable, fences: Iterable[Fence]):
        self._client = client
        self._contents = contents
        self._records = RecordTable(contents.records)
        self._blobs = blobs
        self._last_saved = None
        self._trouble = None
        self.restored: _native.Restored | None = None
        """Of the last load: version, bytes by source, newest_step, seconds. None if nothing was loaded."""
        self._records.add_to(client)
        blobs.add_to(client)
        client.register()
        self._undo_fences = [install(self.fence) for install in fences]

    # ---- load

    def load_checkpoint(self, step: int | None = None) -> int | None:
        """Puts the newest restorable version, or the one of a step, into model, optimizer, scheduler, extra_state and
        generators. Collective. Returns its step, or None if nothing was ever saved. Raises Unrecoverable or
        LayoutError, with nothing changed, if something was saved that cannot be restored.

        A published version of another number of ranks or another sharding is restored, too: model, optimizer and
        scheduler are. The generators and extra_state (the position in the data) are each rank's own, so with another
        number of ranks they stay as they are, and a warning says so; `restored.resharded` and
        `restored.saved_world_size` tell. What only memory had of another number of ranks was published when this one
        attached; if it could not be, or if as many ranks are sharded otherwise, LayoutError says how to publish it."""
        self._records.refresh(self._client)
        self._records.tell_streams(self._client)
        self.restored = self._last_saved = None  # what was put into the blobs is over, too
        try:
            restored = self._client.restore(_native.NEWEST if step is None else step)
        except errors.NotFound:
            return None
        self._blobs.put_back(self._client, self._left_out(restored))
        self._contents.loaded()
        self.restored = restored
        return restored.version.step

    def _left_out(self, restored: _native.Restored) -> list[str]:
        """What is each rank's own, if they are others now."""
        if not restored.resharded or restored.saved_world_size == self._client.world_size:
            return []
        names = self._blobs.left_out()
        if names:
            log.warning("step %d was saved by %d ranks, now there are %d: %s stay as they are", restored.version.step,
                        restored.saved_world_size, self._client.world_size, " and ".join(names))
        return names

    # ---- save

    def save_checkpoint_if_needed(self, step: int) -> bool:
        """Once per step, after the optimizer step and the scheduler's. True if a save was started. The parameters are
        copied while training goes on, until the next optimizer step, which waits for what is left."""
        due = self._client.save_due(step)
        if due:
            self._take()
        started = self._client.save_if_needed(step)
        if started:
            self._last_saved = step
        if due:
            self._tell(None if started else self._client.errmsg())
        return started

    def _tell(self, trouble: str | None):
        """Once for each reason why saves are not started."""
        if trouble and trouble != self._trouble:
            log.warning("saves are skipped: %s", trouble)
        elif self._trouble and not trouble:
            log.warning("saves go on")
        self._trouble = trouble

    def storage_due(self, step: int) -> bool:
        """Whether save_checkpoint_if_needed would save this step to storage, by the intervals."""
        return self._client.save_due(step) == _native.DUE_STORAGE

    def save_checkpoint(self, step: int, to_storage: bool = False):
        """The same without asking the intervals. Every rank must save the same steps."""
        self._take()
        self._client.snapshot(step, _native.SAVE_STORAGE if to_storage else _native.SAVE_MEMORY)
        self._last_saved = step

    def save_last(self, step: int, timeout: float = 600):
        """The end of a training: when it returns, this step is in storage, for the memory goes with the job. Saves it,
        unless it was the last one saved, and has it brought to storage. Collective. Raises TimedOut after
        `timeout` seconds, Canceled if the save was refused or given up; what was committed before is still there
        then."""
        if step != self._last_saved:
            self._take()
        self._client.save_last(step, int(timeout * 1000))
        self._last_saved = step

    def _take(self):
        self._records.refuse_capture()
        self._contents.check()
        self._records.refresh(self._client)
        self._records.tell_streams(self._client)
        self._blobs.take(self._client)

    @property
    def on_devices(self) -> bool:
        """Whether any tensor lies on a CUDA device."""
        return self._records.on_devices

    def fence(self):
        """Waits until the save under way has copied everything. The optimizer's step calls it; call it yourself
        before changing parameters in any other way. Copies from CUDA devices are waited for by the calling thread's
        current stream on each of them, not by the caller: wait("copied") does that. Neither it nor a save belongs into
        the capture of a CUDA graph: call it before the graph is replayed."""
        self._records.tell_streams(self._client)
        self._client.fence()

    def wait(self, stage: str, step: int | None = None, timeout: float = 60):
        """Waits until the save of this step (default: the last one), or a newer one, is "copied", "protected",
        "committed" or "drained". Raises TimedOut after `timeout` seconds, Canceled if the save was given up."""
        if stage not in _native.STAGES:
            raise errors.InvalidArgument(f"stage {stage!r} is none of {', '.join(_native.STAGES)}")
        step = self._last_saved if step is None else step
        if step is None:
            raise errors.NotFound("nothing has been saved yet")
        self._client.wait(step, _native.STAGES[stage], int(timeout * 1000))

    # ---- what there is

    def query(self) -> _native.Version | None:
        """The newest version (term, step) that can be restored now, None if there is none."""
        try:
            return self._client.query()
        except errors.NotFound:
            return None

    def stats(self) -> _native.Stats:
        """Counts of saves, bytes and stall time of this rank."""
        return self._client.stats()

    # ---- end

    def close(self, job_done: bool = True):
        """Leaves. With job_done the agents leave soon, and their memory with them: save_last comes before.
        job_done=False keeps what was saved in memory for a successor, for the configured linger time."""
        while self._undo_fences:
            self._undo_fences.pop()()
        if job_done:
            self._warn_of_unpublished()
        self._client.detach(job_done)

    def _warn_of_unpublished(self):
        if self._last_saved is None or self._client.rank != 0 or not self._client.is_open:
            return
        stats = self.stats()
        if stats.committed_step > stats.published_step:
            log.warning("the job is done, and step %d goes with the memory of its nodes (newest step of this run in "
                        "storage: %s); save_last(step) before close would have kept it", stats.committed_step,
                        stats.published_step or "none")

    def __enter__(self):
        return self

    def __exit__(self, kind, _error, _traceback):
        self.close(job_done=kind is None)
