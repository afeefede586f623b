# SPDX-License-Identifier: Apache-2.0
"""The objects that most frameworks train: modules and optimizers of PyTorch itself."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from .. import errors
from ..state import module_state, walk_model
from ..state.blobs import Blob
from ..state.records import Record
from ..state.rng import Rng
from ..state.sharding import Placer
from ..state.walk_optimizer import OptimizerState

STORAGE_TIMEOUT_S = 600
"""How long training waits for storage where a framework makes it wait: at its end, and while there is no free slot."""


class OptimizerStates:
    """Several optimizers. Their state other than tensors is saved as one value."""

    def __init__(self, states: Sequence[OptimizerState]) -> None:
        self._states = states

    def check(self) -> None:
        """Before each save: see OptimizerState.check."""
        for state in self._states:
            state.check()

    def records(self) -> list[Record]:
        return [record for state in self._states for record in state.records()]

    def blob(self, name: str) -> Blob:
        """The settings of optimizers are the same on all ranks."""
        room = 1024 + sum(state.room() for state in self._states)
        return Blob(name, self.capture, self.apply, room, reshard="any", fits=self.fits, structural=True)

    def capture(self) -> Any:
        return [state.capture() for state in self._states]

    def fits(self, saved: Any) -> None:
        """Raises LayoutError unless `apply` can put this value back."""
        if len(saved) != len(self._states):
            raise errors.LayoutError(f"{len(saved)} optimizers were saved, and there are {len(self._states)}")
        for state, value in zip(self._states, saved, strict=True):
            state.fits_groups(value)

    def apply(self, saved: Any) -> None:
        self.fits(saved)
        for state, value in zip(self._states, saved, strict=True):
            state.apply(value)


class Trained:
    """Models, the optimizers that step their parameters, and the generators of random numbers."""

    def __init__(self, models: Sequence[walk_model.Model], optimizers: Iterable[torch.optim.Optimizer],
                 placer: Placer) -> None:
        names: dict[str, torch.Tensor] = {}
        self._placer = placer
        self._model: list[Record] = []
        for model in models:
            names |= walk_model.named_parameters(model.module)
            self._model += walk_model.parameter_records(model, placer) + walk_model.buffer_records(model, placer)
        self.states = [OptimizerState(optimizer, names, placer) for optimizer in optimizers]
        self.rng = Rng(elastic=True)
        self.module_blobs = module_state.blobs_of([("", model.module) for model in models])
        """The modules' state other than tensors; empty for most."""

    def records(self, more: Iterable[Record] = ()) -> list[Record]:
        """All tensors, and those that the framework adds."""
        return [*self._model, *OptimizerStates(self.states).records(), *more, self.rng.record(self._placer)]
