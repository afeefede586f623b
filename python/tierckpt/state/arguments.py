# SPDX-License-Identifier: Apache-2.0
"""Checks of the arguments of init, before they are used."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch

from .. import errors


@runtime_checkable
class Stateful(Protocol):
    """Something with a state that can be saved and restored: a scheduler, a data loader, or what a user gives as
    extra_state."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any], /) -> object: ...


Models = torch.nn.Module | Mapping[str, torch.nn.Module] | Sequence[torch.nn.Module]
Optimizers = torch.optim.Optimizer | Mapping[str, torch.optim.Optimizer] | Sequence[torch.optim.Optimizer] | None
Schedulers = Stateful | Mapping[str, Stateful] | Sequence[Stateful] | None


def check(model: object, optimizer: object, scheduler: object) -> None:
    """Raises InvalidArgumentError for arguments that cannot be right. The items of collections are checked where they
    are used."""
    if not isinstance(model, (torch.nn.Module, dict, list, tuple)):
        raise errors.InvalidArgumentError(f"model= takes a torch.nn.Module, and this is a {type(model).__name__}")
    if isinstance(optimizer, type) or callable(optimizer) and not hasattr(optimizer, "param_groups"):
        raise errors.InvalidArgumentError(
            "optimizer= takes an optimizer, and this is the class or function that makes one: "
            f"{optimizer!r:.80}")
    _has("optimizer", optimizer, "param_groups")
    for name in ("state_dict", "load_state_dict"):
        _has("scheduler", scheduler, name)


def _has(argument: str, value: object, attribute: str) -> None:
    if value is not None and not isinstance(value, (dict, list, tuple)) and not hasattr(value, attribute):
        raise errors.InvalidArgumentError(f"{argument}= takes an object with {attribute}, and this one has none: "
                                          f"{value!r:.80} ({type(value).__name__})")
