# SPDX-License-Identifier: Apache-2.0
"""What init is given, before anything is made of it."""

import torch

from .. import errors


def check(model, optimizer, scheduler):
    """Raises InvalidArgumentError for arguments that cannot be right. What collections hold is checked where it
    is used."""
    if not isinstance(model, (torch.nn.Module, dict, list, tuple)):
        raise errors.InvalidArgumentError(f"model= takes a torch.nn.Module, and this is a {type(model).__name__}")
    if isinstance(optimizer, type) or callable(optimizer) and not hasattr(optimizer, "param_groups"):
        raise errors.InvalidArgumentError(
            "optimizer= takes an optimizer, and this is the class or function that makes one: "
            f"{optimizer!r:.80}")
    _has("optimizer", optimizer, "param_groups")
    for name in ("state_dict", "load_state_dict"):
        _has("scheduler", scheduler, name)


def _has(argument: str, value, attribute: str):
    if value is not None and not isinstance(value, (dict, list, tuple)) and not hasattr(value, attribute):
        raise errors.InvalidArgumentError(f"{argument}= takes an object with {attribute}, and this one has none: "
                                          f"{value!r:.80} ({type(value).__name__})")
