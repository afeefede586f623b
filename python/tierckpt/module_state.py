# SPDX-License-Identifier: Apache-2.0
"""What modules have beside tensors and state_dict() has too: the values of their get_extra_state()."""

from . import errors
from .blobs import Blob
from .living import Tensors


class ModuleState:
    """Of one model: by the names of its modules."""

    def __init__(self, tensors: Tensors, what: str):
        """`what` names the model in errors."""
        self._tensors, self._what = tensors, what

    def blob(self, name: str, capacity: int | None) -> Blob:
        return Blob(name, self._capture, self._apply, capacity, reshard="any", fits=self._fits)

    def _modules(self) -> dict:
        self._tensors.look()
        return self._tensors.stateful_modules()

    def _capture(self) -> dict:
        return {name: module.get_extra_state() for name, module in self._modules().items()}

    def _fits(self, saved: dict):
        here = self._modules()
        other = sorted(here.keys() ^ saved.keys())
        if other:
            where = "was saved and is not here" if other[0] in saved else "is here and was not saved"
            raise errors.LayoutError(f"the extra state of {self._what}, module {other[0]!r}, {where}")

    def _apply(self, saved: dict):
        for name, module in self._modules().items():
            module.set_extra_state(saved[name])
