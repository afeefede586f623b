# SPDX-License-Identifier: Apache-2.0
"""What a training of torchtitan saves: models and optimizers, and the trainer's other state. It needs no torchtitan."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import torch

from .. import errors
from ..runtime.world import World
from ..state import groups, twins, walk_model
from ..state.contents import Contents
from ..state.sharding import Placer
from ..state.statetree import join
from ..state.user_state import UserState
from ..state.walk_optimizer import OptimizerState
from .trained import OptimizerStates, Trained

MODEL, OPTIMIZER, DATALOADER = "model", "optimizer", "dataloader"  # keys of torchtitan's states
STATE_BYTES = 4 << 20
"""The default of the space for the trainer's other state."""

# In the state of torchtitan's dataloaders: what is the data-parallel rank's own, and how many such ranks there are.
_DP_RANK, _DP_SIZE = "dp_rank_", "world_size"


class OtherStates:
    """The trainer's state other than models and optimizers, as one object: data loader, schedule and its own
    counters."""

    def __init__(self, states: dict[str, Any]) -> None:
        self._states = {key: state for key, state in states.items()
                        if key not in (MODEL, OPTIMIZER) and state is not None}
        self._excluded: Iterable[str] = ()

    def without(self, excluded: Iterable[str]) -> "OtherStates":
        """For a with-statement within which these are not loaded."""
        self._excluded = excluded
        return self

    def __enter__(self) -> "OtherStates":
        return self

    def __exit__(self, *_error: BaseException | None) -> None:
        self._excluded = ()

    def state_dict(self) -> dict[str, Any]:
        return {key: state.state_dict() for key, state in self._states.items()}

    def load_state_dict(self, value: dict[str, Any]) -> None:
        for key, state in self._states.items():
            if key not in self._excluded and key in value:
                state.load_state_dict(value[key])

    def fits(self, saved: dict[str, Any]) -> None:
        """Raises LayoutError unless the dataloader can go on with its state in this value. Schedule and trainer are the
        same on all ranks."""
        fault = self._fault(saved)
        if fault is not None:
            raise errors.LayoutError(fault)

    def choose(self, values: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
        """The value of a rank that had the same part of the data, or else the first, of which `fits` says why it cannot
        be loaded. Tensors that are kept apart from a value are there for the first alone."""
        first = None
        for value in values:
            apart: list[str] = []
            join(value, apart.append)
            if self._fault(value) is None and (first is None or not apart):
                return value
            first = value if first is None else first
        return first

    def _fault(self, saved: dict[str, Any]) -> str | None:
        loader, of_loader = self._states.get(DATALOADER), saved.get(DATALOADER)
        if loader is None or not isinstance(of_loader, dict) or DATALOADER in self._excluded:
            return None
        here: dict[str, Any] = loader.state_dict() if of_loader else {}
        own = [key for key in here if str(key).startswith(_DP_RANK)]
        before, now = of_loader.get(_DP_SIZE), here.get(_DP_SIZE)
        if own and before != now:
            return (f"the state of the dataloader was saved by {before} data-parallel ranks, there are {now} now, and "
                    f"torchtitan cannot divide it among them: add {DATALOADER!r} to exclude_from_loading to load "
                    "everything else and start the data from the beginning")
        lacks = [key for key in own if key not in of_loader]
        return f"the state of the dataloader is not that of {lacks[0]}, which this rank needs" if lacks else None


class Kept:
    """Puts optimizers back to what they were before the with-statement."""

    def __init__(self, optimizers: Any) -> None:
        self._optimizers = list(optimizers)

    def __enter__(self) -> None:
        self._tensors = [(tensor, tensor.clone()) for optimizer in self._optimizers
                         for state in optimizer.state.values() for tensor in state.values() if torch.is_tensor(tensor)]
        self._groups = [[dict(group) for group in optimizer.param_groups] for optimizer in self._optimizers]

    def __exit__(self, *_error: BaseException | None) -> None:
        with torch.no_grad():
            for tensor, before in self._tensors:
                tensor.copy_(before)
        for optimizer, groups_before in zip(self._optimizers, self._groups, strict=True):
            for group, values in zip(optimizer.param_groups, groups_before, strict=True):
                group.update(values)


def contents(model_parts: Any, optimizers: Any, others: OtherStates, state_bytes: int, world: World) -> Contents:
    """Parameters by their own names and in their own memory. state_dict() has others for fused ones: copies, which its
    hooks create each time."""
    placer = Placer(world.rank, groups.of_ranks([world.rank]) if world.size == 1 else None)
    optimizers = list(optimizers)
    for optimizer in optimizers:
        _refuse_unknown(optimizer)
    trained = Trained([walk_model.unwrap(part) for part in model_parts], optimizers, placer)
    states, extra = _StatesOfParts(trained.states), UserState(others, reshard="any")
    records = trained.records(extra.records(placer))
    twins.confirm(records, world)
    rest = replace(extra.blob(state_bytes), fits=others.fits, choose=others.choose)
    blobs = [*trained.module_blobs, states.blob("optimizer"), rest, trained.rng.blob(None)]
    return Contents(records, blobs, check=states.check)


class _StatesOfParts(OptimizerStates):
    """The optimizers of all model parts. Other ranks may have had more parts, or fewer."""

    def capture(self) -> dict[str, Any]:
        return {"parts": [state.capture() for state in self._states]}

    def fits(self, saved: dict[str, Any]) -> None:
        for state, value in self._with_own(saved):
            state.fits_groups(value)

    def apply(self, saved: dict[str, Any]) -> None:
        for state, value in self._with_own(saved):
            state.apply(value)

    def _with_own(self, saved: dict[str, Any]) -> Iterator[tuple[OptimizerState, dict[str, Any]]]:
        """torchtitan gives all parts the same hyperparameters."""
        for i, state in enumerate(self._states):
            yield state, saved["parts"][min(i, len(saved["parts"]) - 1)]


def _refuse_unknown(optimizer: torch.optim.Optimizer) -> None:
    hooks = [getattr(hook, "__name__", "") for hook in optimizer._optimizer_step_pre_hooks.values()]
    if "_bf16_state_init_hook" in hooks:
        raise errors.UnsupportedError("fused_opt_states_bf16 makes the optimizer's state in the first step, and it is "
                                      "needed before: use another implementation of the optimizer")
