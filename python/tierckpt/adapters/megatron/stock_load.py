# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM's own checkpoint, as its load_checkpoint finds it."""

import json
import logging
from contextlib import nullcontext
from typing import Any

from ... import errors
from ...core.checkpoint import Checkpoint
from ...runtime.world import World
from ..marked import text_of_mark
from .arguments import asked_iteration
from .order import directory_of
from .start import Start
from .stock_saves import StockSaves
from .tracker import found_in, tracked

log = logging.getLogger("tierckpt")


class StockLoad:
    """Megatron-LM's own checkpoint."""

    def __init__(self, args: Any, load_arg: str, positional: tuple[Any, ...], keywords: dict[str, Any],
                 saves: StockSaves | None) -> None:
        """args: those of Megatron-LM. positional, keywords: those of its load_checkpoint. saves: with storage_format
        framework."""
        self._args, self._load_arg, self._saves = args, load_arg, saves
        named: Any = getattr(args, load_arg, None)
        self._dir: Any = named if saves is None else saves.directory_to_load(named)
        self._own = self._dir != named
        self._positional = positional
        self._keywords = keywords

    def there(self) -> bool:
        return self._tracked() is not None

    def _tracked(self) -> int | None:
        """The iteration that Megatron would load; None if there is none, 0 if it would start over."""
        newest = tracked(self._dir)
        return newest if newest is None or self._own or not getattr(self._args, "finetune", False) else 0

    def newest(self, world: World) -> int:
        """The same on every rank. Collective."""
        return max(world.gather(world.agreed(lambda: self._tracked() or 0)))

    def start_of(self, iteration: int) -> Start | None:
        """The start that has written this iteration with storage_format framework; None for what Megatron has saved by
        itself."""
        if self._dir is None:
            return None
        directory = directory_of(self._dir, iteration)
        try:
            start: Start = json.loads(text_of_mark(directory) or "null")
        except (OSError, ValueError) as error:
            log.warning("%s: its marker cannot be read, so it counts as saved by another training: %s", directory,
                        error)
            return None
        return start

    def found(self, world: World) -> list[int] | None:
        """What found_in says of the directory. Collective."""
        return world.agreed(lambda: found_in(self._dir))

    def loads_all(self, world: World) -> bool:
        """Whether Megatron would load the optimizer, too. Collective."""
        return self.newest(world) > 0 and (self._own or not getattr(self._args, "no_load_optim", False))

    def has(self, iteration: int) -> bool:
        if self._dir is None:
            return False
        release = self.there() and not tracked(self._dir)  # has no number
        return release or directory_of(self._dir, iteration).is_dir()

    def absence(self, iteration: int) -> str:
        """Why Megatron has nothing of this iteration; for errors."""
        return f"--{self._load_arg} is not given" if self._dir is None else \
            f"{directory_of(self._dir, iteration)} does not exist"

    def load_for(self, checkpoint: Checkpoint) -> tuple[int, float]:
        """In place of what this one has."""
        loaded = self.load()
        checkpoint.filled_elsewhere()
        return loaded

    def load_asked(self, iteration: int, world: World, checkpoint: Checkpoint) -> tuple[int, float]:
        """The iteration that --ckpt-step names, of which Tierckpt has no version. Raises NotFoundError if Megatron has
        none either, since it might start over then. Collective."""
        def look() -> None:
            if not self.has(iteration):
                raise errors.NotFoundError(f"--ckpt-step {iteration}: nothing of this iteration is published, and "
                                           f"{self.absence(iteration)}")

        world.agreed(look)
        loaded = self._load()
        checkpoint.filled_elsewhere()
        return loaded

    def load(self) -> tuple[int, float]:
        """The newest. --ckpt-step counts only for a training that begins with another one's checkpoint (--finetune)."""
        asked = getattr(self._args, "ckpt_step", None)
        if not asked or (asked_iteration(self._args) is None and not self._own):
            return self._load()
        self._args.ckpt_step = None
        try:
            return self._load()
        finally:
            self._args.ckpt_step = asked

    def _load(self) -> tuple[int, float]:
        if self._dir is None and getattr(self._args, "pretrained_checkpoint", None) is None:
            return 0, 0
        from megatron.training import checkpointing

        with nullcontext() if self._saves is None else self._saves.loading_own(self._load_arg, self._dir):
            return checkpointing.load_checkpoint(*self._positional, **self._keywords)
