# SPDX-License-Identifier: Apache-2.0
"""`storage_format` framework: a step for storage becomes a checkpoint of Megatron-LM in --save, written in the
background.

Megatron's own save_checkpoint builds what is to be written. It is copied into memory that a process of this rank has
mapped, too, and training continues. The processes of all ranks write (write_files.py)."""

import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch.distributed as dist

from ... import errors
from ...core.outside_storage import OutsideStorage
from ...runtime.world import World
from ..api_compat import RequiredApi, usable
from ..shared_copy import Place, SharedMemory
from ..trained import STORAGE_TIMEOUT_S
from . import unwritten, write_files
from .arguments import asked_iteration
from .order import Meeting, Order, Outcome, directory_of
from .start import Start
from .tracker import tracked
from .write_process import WriteProcess

log = logging.getLogger("tierckpt")

_REQUIRED_API = (
    *unwritten.REQUIRED_API,
    RequiredApi("megatron.training.checkpointing:load_checkpoint", (
        "ddp_model", "optimizer", "opt_param_scheduler", "load_arg", "strict")),
)
_NOT_OF_OWN = {"finetune": False, "no_load_optim": None, "no_load_rng": None}
"""Arguments that say what to take from another training's checkpoint, with the values for one of this training."""


class StockSaves:
    """Saves into --save, and deletes what it has saved there before, beyond the newest `keep`; 0: nothing. What
    Megatron saves at its own --save-interval stays."""

    def __init__(self, args: Any, world: World, keep: int) -> None:
        """args: those of Megatron-LM. Raises ConfigError without them, or without --save. Collective."""
        if getattr(args, "save", None) is None:
            raise errors.ConfigError("with storage_format framework Megatron-LM's own save_checkpoint saves, into its "
                                     "--save, which is missing here: give --save, or take storage_format out of the "
                                     "configuration")
        if not usable("storage_format framework", "Megatron-LM", _REQUIRED_API):
            raise errors.UnsupportedError("this Megatron-LM saves in another way than storage_format framework expects "
                                          "(see the warning): take storage_format out of the configuration")
        self.keep = keep
        self.skipped = 0
        """Steps that were not saved since the one before was still being written."""
        self.health = OutsideStorage()
        self._args, self._world = args, world
        self._memory = SharedMemory()
        self._process: WriteProcess | None = None
        self._order: Order | None = None  # the last one that has not failed
        self._sent_at = 0.0
        self._afterwards: list[Callable[[], object]] = []
        self._attempt = 0
        self._found: int | None = None
        self._how_begun: Start | None = None
        self._store, self._host, self._port, self._token = _meeting_place(world)
        if world.rank == 0:
            _try("what is left of unfinished checkpoints stays",
                 lambda: write_files.delete_unfinished(Path(args.save)))

    # ---- save

    def begin(self, start: Start, iteration: int) -> None:
        """To be called before the first save, with the iteration from which the training continues."""
        self._how_begun, named = start, None
        if self._world.rank == 0:  # it replaces the file
            try:
                named = tracked(self._args.save)
            except errors.IoError as error:
                log.warning("if the training has gone back to an earlier iteration, Megatron may load a later one: %s",
                            error)
        self._found = named if named is not None and iteration < named else None

    def save(self, iteration: int, model: list[Any], optimizer: Any, scheduler: Any, flops: Any,
             save: Callable[[], object] | None = None) -> None:
        """Copies the state and returns. `save` calls save_checkpoint as Megatron's loop does; None: a loop by hand.
        Collective."""
        if self._by_itself(iteration, in_its_loop=save is not None) or not self._is_free(iteration):
            return
        if save is None:
            _gather_params(model)
            save = partial(_save_checkpoint, iteration, model, optimizer, scheduler, flops)
        content = unwritten.build(self._args, save)
        place = self._copied(iteration, content)
        if place is not None and self._process is not None:
            self._afterwards = content.afterwards
            self._order = Order(os.path.abspath(self._args.save), iteration, self._token, self.keep, place,
                                self._found, self._how_begun)
            self._sent_at = time.monotonic()
            self._process.send(self._order)

    def _by_itself(self, iteration: int, in_its_loop: bool) -> bool:
        """Whether Megatron saves this iteration by itself, or will at the end of its loop. The same on every rank."""
        interval: int = getattr(self._args, "save_interval", None) or 0
        if interval > 0 and iteration % interval == 0:
            return True
        return in_its_loop and iteration == getattr(self._args, "train_iters", None)

    def _is_free(self, iteration: int) -> bool:
        """Whether nothing is being written on any rank, and not this iteration was written last. Starts the processes
        if there are none, or one of them has ended: then the others may wait for it. Collective."""
        self.look()
        process = self._process
        busy, alive, same = zip(*self._world.gather((
            process is not None and process.busy, process is not None and process.alive(),
            self._order is not None and self._order.iteration == iteration)), strict=True)
        if all(same):
            return False
        if not all(alive):
            self._start(alive.index(False))
        elif any(busy):
            self._skip(iteration)
            return False
        return True

    def _skip(self, iteration: int) -> None:
        self.skipped += 1
        took = time.monotonic() - self._sent_at
        if self._order is not None and took > STORAGE_TIMEOUT_S:
            self.health.failed(iteration, f"{self._order.directory} is not written yet, after {took:.0f} s")
        if self._world.rank == 0:
            level = logging.WARNING if self.skipped == 1 else logging.INFO
            log.log(level, "iteration %d is not written to storage, since the one before is still being written (%d "
                    "skipped so far): choose a longer save_storage_interval, or faster storage", iteration,
                    self.skipped)

    def _start(self, gone: int) -> None:
        """`gone`: a rank whose process has ended, or was never there."""
        if self._process is not None:
            if self._process.busy and self._order is not None:
                self._failed(self._order.iteration, f"the process of rank {gone} has ended")
            self._process.end()
        self._attempt += 1
        self._process = WriteProcess(self._memory.descriptor, Meeting(
            self._world.rank, self._world.size, self._host, self._port, self._attempt))

    def _copied(self, iteration: int, content: unwritten.Unwritten) -> Place | None:
        """Without what is to be done afterwards, which only this process can do. None if a rank has no memory for it.
        Collective."""
        place, fault = None, None
        try:
            place = self._memory.copy(unwritten.Unwritten(content.files, content.sharded, content.threads))
        except Exception as error:  # as for any other save: training continues
            fault = f"{type(error).__name__}: {error}"
        faults = self._world.gather(fault)
        for rank, of_rank in enumerate(faults):
            if of_rank is not None:
                self._failed(iteration, f"rank {rank} could not copy it: {of_rank}")
                return None
        return place

    # ---- afterwards

    def look(self, timeout: float = 0) -> None:
        """To be called at each iteration. Learns what has become of the last save, for which it waits that long in
        seconds."""
        outcome = None if self._process is None else self._process.outcome(timeout)
        if outcome is None:
            return
        if outcome.fault is not None:
            self._failed(outcome.iteration, outcome.fault)
        else:
            self._succeeded(outcome)

    def _succeeded(self, outcome: Outcome) -> None:
        self.health.worked()
        self._found = None
        log.log(logging.INFO if self._world.rank == 0 else logging.DEBUG, "iteration %d is in %s", outcome.iteration,
                self._args.save)
        afterwards, self._afterwards = self._afterwards, []
        for act in afterwards:
            act()

    def _failed(self, iteration: int, why: str) -> None:
        text = f"{directory_of(self._args.save, iteration)} was not written: {why}"
        self._order = None
        self.health.failed(iteration, text)
        log.log(logging.ERROR if self._world.rank == 0 else logging.DEBUG, "%s", text)

    def finish(self, timeout: float = STORAGE_TIMEOUT_S) -> bool:
        """Waits for what is being written. Returns whether the last one of this start is there, if there was one."""
        self.look(timeout)
        if self._process is not None and self._process.busy and self._order is not None:
            self._failed(self._order.iteration, f"it took longer than {timeout:g} s at the end of the training")
        if self.health.well:
            return True
        if self._world.rank == 0:
            log.warning("the last step for storage is not there (see the log), so the agents keep their memory for "
                        "linger_s: start the job again to continue from it")
        return False

    def close(self) -> None:
        """Ends what is being written: it leaves nothing that Megatron would load."""
        if self._process is not None:
            self._process.end()
            self._process = None
        self._memory.close()

    # ---- load

    def directory_to_load(self, load: str | None) -> str | None:
        """--save, if what is there is at least as late as in the directory that --load names; it was saved by this
        training. Otherwise the latter. With --ckpt-step the first of both that has this iteration. Collective."""
        asked = asked_iteration(self._args)

        def prefers_own() -> bool:
            if _same(self._args.save, load):
                return False
            if asked is not None and directory_of(self._args.save, asked).is_dir():
                return True
            if asked is not None and load is not None and directory_of(load, asked).is_dir():
                return False
            own = tracked(self._args.save) or 0
            return own > 0 and own >= self._other(load)

        return self._args.save if self._world.gather(self._world.agreed(prefers_own))[0] else load

    def _other(self, load: str | None) -> int:
        return 0 if getattr(self._args, "finetune", False) else tracked(load) or 0

    @contextmanager
    def loading_own(self, load_arg: str, directory: str | None) -> Iterator[None]:
        """With the arguments that Megatron's load has to have for a directory, if that is not what `load_arg` names."""
        args, own = self._args, {load_arg: directory, **_NOT_OF_OWN}
        if directory is None or _same(directory, getattr(args, load_arg, None)):
            own = {}
        before = {name: getattr(args, name, None) for name in own}
        vars(args).update(own)
        try:
            yield
        finally:
            vars(args).update(before)


def _meeting_place(world: World) -> tuple[Any, str, int, str]:
    """A store of the first rank, where it is, and a name for this start that is the same on all ranks. Collective."""
    if world.size == 1:
        return None, "", 0, secrets.token_hex(4)
    first = world.rank == 0
    stores: Any = dist
    store = stores.TCPStore("localhost", 0, is_master=True, wait_for_workers=False) if first else None
    host = os.environ.get("MASTER_ADDR") or socket.gethostname()
    here = socket.gethostname(), host, 0 if store is None else store.port, secrets.token_hex(4)
    everywhere = world.gather(here)
    _, host, port, token = everywhere[0]
    on_one_node = len({name for name, *_ in everywhere}) == 1
    return store, "localhost" if on_one_node else host, port, token


def _save_checkpoint(*state: Any) -> None:
    from megatron.training import checkpointing

    checkpointing.save_checkpoint(*state)


def _same(one: str, other: str | None) -> bool:
    return other is not None and os.path.realpath(one) == os.path.realpath(other)


def _gather_params(model: list[Any]) -> None:
    """What the optimizer has changed is gathered during the next forward pass, if that is overlapped."""
    for chunk in model:
        if getattr(getattr(chunk, "ddp_config", None), "overlap_param_gather", False):
            chunk.start_param_sync(force_sync=True)


def _try(failure: str, act: Callable[[], object]) -> None:
    try:
        act()
    except OSError as error:
        log.warning("%s: %s", failure, error)
