# SPDX-License-Identifier: Apache-2.0
"""What the state_dict() of a model or an optimizer has and a checkpoint does not.

Parameters, buffers, get_extra_state(), param_groups and optimizer.state are saved. A class may add more to its
state_dict() by code of its own. That is not saved, since only the load_state_dict() of the same class could put it
back, and the program learns of it when it begins, not after a resumed training has gone another way."""

from collections.abc import Iterable
from typing import Any

import torch

from ..runtime.notices import few
from .model_tensors import clean_name
from .probe import bare, states_by_parameter
from .statetree import tensors_in
from .zero_redundancy import zero_redundancy_class

_EXTRA_STATE = "_extra_state"


def of_model(what: str, module: torch.nn.Module) -> str | None:
    """A line for the log; None if there is nothing."""
    try:
        entries = module.state_dict().keys()
    except Exception as error:
        return (f"whether the state_dict() of {what} has more than parameters and buffers is not known, as it raises "
                f"{type(error).__name__}: {error}")
    saved = {clean_name(name) for name, _ in (*module.named_parameters(remove_duplicate=False),
                                              *module.named_buffers(remove_duplicate=False))}
    more = sorted({clean_name(name) for name in entries if name.rpartition(".")[2] != _EXTRA_STATE} - saved)
    if not more:
        return None
    return (f"{few(more)} of {what} {_is(more)} neither a parameter nor a buffer, and so will not be saved: a module "
            "of yours can register a buffer or have get_extra_state() and set_extra_state(); or give its value to "
            "extra_state=")


def of_optimizer(what: str, optimizer: torch.optim.Optimizer, known: Iterable[torch.optim.Optimizer]) -> str | None:
    """The same for an optimizer. `known` are all whose state is saved: one that wraps another may show its state."""
    plain = {torch.optim.Optimizer.state_dict, getattr(zero_redundancy_class(), "state_dict", None)}
    if type(optimizer).state_dict in plain:
        return None
    try:
        entries = optimizer.state_dict()
    except Exception as error:
        return (f"whether the state_dict() of {what} has more than state and param_groups is not known, as it raises "
                f"{type(error).__name__}: {error}")
    tensors = {id(tensor) for one in known for state in states_by_parameter(bare(one)).values()
               for tensor in tensors_in(state).values()}
    more = sorted(str(key) for key, value in entries.items()
                  if key not in ("state", "param_groups") and not _is_covered(value, tensors))
    if not more:
        return None
    return (f"{few(more)} in the state_dict() of {what} will not be saved, as only what is in its param_groups and its "
            "state is: keep the value there, or give it to extra_state=")


def _is_covered(value: Any, known: set[int]) -> bool:
    """Whether a value is empty so far, or consists of tensors that are saved elsewhere and what belongs to them."""
    if isinstance(value, (dict, list, tuple)) and not value:
        return True
    found = tensors_in({"": value}).values()
    return bool(found) and all(id(tensor) in known for tensor in found)


def _is(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"
