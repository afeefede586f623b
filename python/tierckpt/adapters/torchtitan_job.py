# SPDX-License-Identifier: Apache-2.0
"""A training of torchtitan as a job of Tierckpt: what both checkpoint managers share."""

import logging
from collections.abc import Collection
from contextlib import nullcontext
from typing import Any

from .. import errors
from ..core.checkpoint import Checkpoint, attach
from ..core.saving import SaveResult
from ..runtime.native import job_name
from ..runtime.settings import configuration, local_save_dir, storage_format
from ..runtime.world import World, join_world
from ..state.contents import before_optimizer_step
from ..state.dcp_files import FORMAT
from .reshard import load_any_layout
from .torchtitan_state import OPTIMIZER, STATE_BYTES, Kept, OtherStates, contents
from .torchtitan_steps import StepDirectories
from .torchtitan_stock import States, with_dcp_files
from .trained import STORAGE_TIMEOUT_S

log = logging.getLogger("tierckpt")

ASYNC_MODES = ("disabled", "async", "async_with_pinned_mem")
"""When a save returns. disabled: the version is committed, and on storage if it goes there. async: it is copied.
async_with_pinned_mem: at once; the next optimizer step waits for the rest of the copy."""


class TitanJob:
    """It attaches at the first load or save, when the model has its values."""

    def __init__(self, model_parts: Any, optimizers: Any, states: dict[str, Any], settings: dict[str, Any],
                 async_mode: str, state_bytes: int = STATE_BYTES, *, folder: str, stock_states: States) -> None:
        """folder, stock_states: where torchtitan's own manager saves, and what it would save. They are used with
        storage_format dcp alone."""
        self._model_parts, self._optimizers = model_parts, optimizers
        self._states = OtherStates(states)
        self._settings, self._async_mode, self._state_bytes = settings, async_mode, state_bytes
        self._folder, self._stock_states = folder, stock_states
        self._steps: StepDirectories | None = None
        self.checkpoint: Checkpoint | None = None
        """From the first load or save until the end."""

    def attach(self) -> Checkpoint:
        """Collective."""
        if self.checkpoint is None:
            self.world: World = join_world()
            self._contents = contents(self._model_parts, self._optimizers, self._states, self._state_bytes, self.world)
            # The trainer asks for the fence right before the step, and other loops might forget it.
            fences = [before_optimizer_step(optimizer) for optimizer in self._optimizers]
            contents_in_files = self._contents
            if storage_format(self._settings, None) == FORMAT:
                local_save_dir(self._settings["save_dir"], "storage_format dcp links its files into step-N directories")
                contents_in_files = with_dcp_files(self._contents, self._stock_states, self.world)
            self.checkpoint = attach(contents_in_files, world=self.world, config=self._settings, fences=fences)
            if contents_in_files is not self._contents and self.world.rank == 0:
                job = job_name(**configuration(self._settings, None))
                self._steps = StepDirectories(self._folder, str(self._settings["save_dir"]), job,
                                              self._settings["max_ckpt_num"])
                self._steps.update()
        return self.checkpoint

    def load(self, step: int | None, excluded: Collection[str] = ()) -> int | None:
        """Loads a step, or the newest, from memory or storage. Returns the step, None if there is none. Collective."""
        checkpoint = self.attach()
        kept = Kept(self._optimizers) if OPTIMIZER in excluded else nullcontext()
        with self._states.without(excluded), kept:
            loaded = load_any_layout(checkpoint, self._contents, self.world, step, config=self._settings)
        if loaded is not None:
            log.info("loaded step %d (%s)", loaded, checkpoint.restored or "with another number of ranks")
        return loaded

    def filled_elsewhere(self) -> None:
        """As Checkpoint.filled_elsewhere."""
        if self.checkpoint is not None:
            self.checkpoint.filled_elsewhere()

    def save_to_storage(self, step: int, last: bool = False) -> None:
        """Saves this step whatever the intervals say. The last one is waited for in any mode."""
        self.attach().save_checkpoint(step, to_storage=True)
        self._saved(step, "drained" if last or self._async_mode == "disabled" else None)

    def save_if_needed(self, step: int) -> SaveResult:
        """Saves this step if the intervals of the settings say so."""
        result = self.attach().save_checkpoint_if_needed(step)
        if result:
            self._saved(step, "committed" if self._async_mode == "disabled" else None)
        return result

    def look(self) -> None:
        """After each step of the training."""
        if self._steps is not None and self.checkpoint is not None:
            self._steps.look(self.checkpoint.stats().published_step)

    def settle(self) -> None:
        """After the last step, which is on storage."""
        if self._steps is not None:
            self._steps.settle()

    def _saved(self, step: int, stage: str | None) -> None:
        if self._async_mode != "async_with_pinned_mem":
            self.fence()
        if stage is None:
            return
        try:
            self.attach().wait(stage, step, STORAGE_TIMEOUT_S)
        except errors.Error as error:  # as for any other save: it is logged, and training continues
            log.warning("step %d is not %s: %s", step, stage, error)

    def fence(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.fence()

    def close(self, job_done: bool) -> None:
        checkpoint, self.checkpoint = self.checkpoint, None
        if checkpoint is not None:
            checkpoint.close(job_done)
        steps, self._steps = self._steps, None
        if steps is not None:
            steps.close()
