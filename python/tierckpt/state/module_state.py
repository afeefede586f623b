# SPDX-License-Identifier: Apache-2.0
"""What modules save beside tensors: the values of their get_extra_state(), which state_dict() has, too."""

from collections.abc import Iterable
from typing import Any

import torch

from .. import errors
from .blobs import Blob
from .model_tensors import ModelTensors


def blobs_of(modules: Iterable[tuple[str, torch.nn.Module]], capacity: int | None = None) -> list[Blob]:
    """For models that a framework has made, each with the prefix of its names. Empty if their modules have nothing but
    tensors."""
    parts = [(prefix, ModelTensors(module, prefix)) for prefix, module in modules]
    if not any(tensors.stateful_modules() for _, tensors in parts):
        return []
    return [ModuleState(parts, "the model").blob("model", capacity)]


class ModuleState:
    """The values of the parts of one model, by the names of its modules."""

    def __init__(self, parts: Iterable[tuple[str, ModelTensors]], what: str) -> None:
        """Each part with the prefix of its names. `what` names the model in errors."""
        self._parts, self._what = list(parts), what

    def blob(self, name: str, capacity: int | None) -> Blob:
        return Blob(name, self._capture, self._apply, capacity, reshard="any", fits=self._fits, choose=self._choose)

    def _modules(self) -> dict[str, torch.nn.Module]:
        found: dict[str, torch.nn.Module] = {}
        for prefix, tensors in self._parts:
            tensors.look()
            found.update({prefix + name: module for name, module in tensors.stateful_modules().items()})
        return found

    def _capture(self) -> dict[str, Any]:
        return {name: module.get_extra_state() for name, module in self._modules().items()}

    def _choose(self, saved: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """If the stages of a pipeline were cut differently, other ranks have saved what this one needs."""
        here, found = self._modules(), dict[str, Any]()
        for values in saved:
            found = {name: value for name, value in values.items() if name in here} | found
            if found.keys() == here.keys():
                break
        return found

    def _fits(self, saved: dict[str, Any]) -> None:
        here = self._modules()
        other = sorted(here.keys() ^ saved.keys())
        if other:
            where = "was saved and is not here" if other[0] in saved else "is here and was not saved"
            raise errors.LayoutError(f"the extra state of {self._what}, module {other[0]!r}, {where}")

    def _apply(self, saved: dict[str, Any]) -> None:
        for name, module in self._modules().items():
            if type(module).set_extra_state is not torch.nn.Module.set_extra_state:  # as load_state_dict() does
                module.set_extra_state(saved[name])
