# SPDX-License-Identifier: Apache-2.0
"""Optimizers that step parameters of the registered models, but were not given to init."""

import logging
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from .. import errors
from .walk_optimizer import OptimizerState

log = logging.getLogger("tierckpt")


class ForeignOptimizers:
    """Makes them wait for the copy of a save, as the known optimizers do. `ours` are the optimizers that init was
    given, `states` is what is known about their states, and `models` has parameters()."""

    def __init__(self, ours: list[torch.optim.Optimizer], states: dict[str, OptimizerState], models: Any,
                 extra_state: object) -> None:
        self._ours = [*ours, *(one for state in states.values() for one in state.optimizers)]
        self._states, self._models, self._extra_state = states, models, extra_state
        self._verdicts: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[int, bool]] = \
            weakref.WeakKeyDictionary()
        self._rival: str | None = None

    def fence(self, fence: Callable[[], None]) -> Callable[[], None]:
        """As contents.Fence. The hook belongs to torch and stays until it is removed, so it keeps nothing alive."""
        find: Callable[[], Callable[[], None] | None] = \
            weakref.WeakMethod(fence) if hasattr(fence, "__self__") else lambda: fence
        others = weakref.ref(self)

        def before_any_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
            known, wait = others(), find()
            if known is not None and wait is not None and known._concern(optimizer):
                wait()
        return register_optimizer_step_pre_hook(before_any_step).remove

    def _concern(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether init was not given this optimizer, and it steps parameters of our models."""
        count = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._verdicts.get(optimizer)
        if known is not None and known[0] == count:
            return known[1]
        try:
            verdict = self._judge(optimizer)
        except errors.LayoutError as error:  # the next save is skipped because of it: no reason to end this step
            log.debug("what %s steps is not known: %s", type(optimizer).__name__, error)
            return True
        self._verdicts[optimizer] = count, verdict
        return verdict

    def _judge(self, optimizer: torch.optim.Optimizer) -> bool:
        if any(optimizer is ours for ours in self._ours):
            return False
        stepped = {id(param) for group in optimizer.param_groups for param in group["params"]}
        names = [name for name, param in self._models.parameters().items() if id(param) in stepped]
        if not names:
            return False
        known = {name for state in self._states.values() for name in state.params}
        rivals = [name for name in names if name in known]
        if rivals:
            self._rival = (f"{rivals[0]} is stepped by another optimizer ({type(optimizer).__name__}) than was "
                           "registered, whose state would not be saved: call ckpt.refresh(optimizer=...) on every rank")
        elif optimizer is not self._extra_state:
            log.warning("%s is stepped by an optimizer (%s) that init was not given: its state is saved only if "
                        "extra_state has it. Give init all of them: optimizer=[...]", names[0],
                        type(optimizer).__name__)
        return True

    def check(self) -> None:
        """Before a save. Raises LayoutError if one steps a parameter that a registered optimizer steps, too."""
        if self._rival is not None:
            raise errors.LayoutError(self._rival)
