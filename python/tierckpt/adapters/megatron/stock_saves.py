# SPDX-License-Identifier: Apache-2.0
"""`storage_format` framework: a step for storage is saved by Megatron-LM's own save_checkpoint, into --save."""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ... import errors
from ...runtime.world import World
from ..api_compat import RequiredApi, usable
from ..marked import delete_old, empty_trash, mark

log = logging.getLogger("tierckpt")

_REQUIRED_API = (
    RequiredApi("megatron.training.checkpointing:save_checkpoint", (
        "iteration", "model", "optimizer", "opt_param_scheduler", "num_floating_point_operations_so_far")),
    RequiredApi("megatron.training.checkpointing:load_checkpoint", (
        "ddp_model", "optimizer", "opt_param_scheduler", "load_arg", "strict")),
    RequiredApi("megatron.training.async_utils:maybe_finalize_async_save", ("blocking",)),
)
_PREFIX = "iter_"
_NOT_OF_OWN = {"finetune": False, "no_load_optim": None, "no_load_rng": None}
"""Arguments that say what to take from another training's checkpoint, with the values for one of this training."""


def tracked(directory: str | None) -> int | None:
    """The iteration that Megatron would load from a directory; None if there is none, 0 if it is not a number. Raises
    IoError if that cannot be read."""
    if not directory:
        return None
    path = Path(directory, "latest_checkpointed_iteration.txt")
    try:
        text = path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise errors.IoError(f"{path}: {error.strerror}: it is not known what was saved there") from error
    return int(text) if text.isdigit() else 0


class StockSaves:
    """Saves into --save, and deletes what it has saved there before, beyond the newest `keep`; 0: nothing. What
    Megatron saves at its own --save-interval stays."""

    def __init__(self, args: Any, world: World, keep: int) -> None:
        """args: those of Megatron-LM. Raises ConfigError without them, or without --save."""
        if getattr(args, "save", None) is None:
            raise errors.ConfigError("with storage_format framework Megatron-LM's own save_checkpoint saves, into its "
                                     "--save, which is missing here: give --save, or take storage_format out of the "
                                     "configuration")
        if not usable("storage_format framework", "Megatron-LM", _REQUIRED_API):
            raise errors.UnsupportedError("this Megatron-LM saves in another way than storage_format framework expects "
                                          "(see the warning): take storage_format out of the configuration")
        self.keep = keep
        self._args, self._world = args, world
        self._newest_saved: int | None = None  # of this process, and not known to be complete
        self._deletion: threading.Thread | None = None
        self._told = False
        if world.rank == 0:
            _try("what is left of deleted checkpoints stays", lambda: empty_trash(Path(args.save)))

    # ---- save

    def save(self, iteration: int, model: list[Any], optimizer: Any, scheduler: Any, flops: Any,
             save: Callable[[], object] | None = None) -> None:
        """`save` does it in the place of save_checkpoint, if it is given. Collective."""
        if self._by_itself(iteration, in_its_loop=save is not None):
            return
        self._tell()
        if save is None:
            from megatron.training import checkpointing

            _gather_params(model)
            checkpointing.save_checkpoint(iteration, model, optimizer, scheduler, flops)
        else:
            save()
        if self._world.rank == 0:
            _try(f"iteration {iteration} will never be deleted", lambda: mark(self._directory(iteration)))
        self._newest_saved = iteration
        self._delete_old()

    def _by_itself(self, iteration: int, in_its_loop: bool) -> bool:
        """Whether Megatron has saved this iteration by itself, or will at the end of its loop. Saving it once more
        would overwrite it. The same on every rank."""
        interval: int = getattr(self._args, "save_interval", None) or 0
        if interval > 0 and iteration % interval == 0:
            return True
        if in_its_loop and iteration == getattr(self._args, "train_iters", None):
            return True
        return bool(self._world.gather(self._newest_known() == iteration)[0])

    def _newest_known(self) -> int | None:
        """As tracked, but None also if it cannot be read now. A step is then saved once more, and nothing is deleted
        before it can be read; a load must not use this."""
        try:
            return tracked(self._args.save)
        except errors.IoError as error:
            log.debug("%s", error)
            return None

    def _tell(self) -> None:
        if not self._told and not getattr(self._args, "async_save", False) and self._world.rank == 0:
            log.warning("Megatron's own saves to storage (storage_format framework) stop the training until they are "
                        "written; with --async-save they do not")
        self._told = True

    def _directory(self, iteration: int) -> Path:
        return Path(self._args.save, f"{_PREFIX}{iteration:07d}")

    # ---- afterwards

    def look(self, finalize: bool) -> None:
        """To be called at each iteration. finalize: Megatron's loop does not do it. Collective then."""
        if self._newest_saved is None:
            return
        if finalize:
            self._finalize(blocking=False)
        self._delete_old()

    def finish(self) -> None:
        """Waits for what is being written. Collective."""
        if self._newest_saved is not None:
            self._finalize(blocking=True)
            self._delete_old()
        self.close()

    def close(self) -> None:
        if self._deletion is not None:
            self._deletion.join()

    def _finalize(self, blocking: bool) -> None:
        from megatron.training import async_utils

        async_utils.maybe_finalize_async_save(blocking=blocking)

    def _delete_old(self) -> None:
        """When the newest is complete, in a thread: large directories take long."""
        if self._world.rank != 0 or self._newest_saved is None:
            return
        current = self._newest_known()
        if current is None or current < self._newest_saved:
            return
        self._newest_saved = None
        self.close()
        self._deletion = threading.Thread(
            target=_try, args=("old checkpoints could not be deleted",
                               lambda: delete_old(Path(self._args.save), _PREFIX, self.keep, current)), daemon=True)
        self._deletion.start()

    # ---- load

    def directory_to_load(self, load: str | None) -> str | None:
        """--save, if what is there is at least as late as in the directory that --load names; it was saved by this
        training. Otherwise the latter. Collective."""
        def prefers_own() -> bool:
            own = tracked(self._args.save) or 0
            return own > 0 and own >= self._other(load) and not _same(self._args.save, load)

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
