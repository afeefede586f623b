# SPDX-License-Identifier: Apache-2.0
"""Optimizer state before the first step.

Records are registered before training begins, but an optimizer makes its state in its first step. Where we know
exactly how, the state is made here in the same way, which changes nothing. Other optimizers must have made it already.
"""

import torch
from torch.optim.optimizer import _get_scalar_dtype

from . import errors


def materialise(optimizer: torch.optim.Optimizer, every: bool = False) -> dict[torch.Tensor, dict[str, torch.Tensor]]:
    """Fills optimizer.state. Returns stand-ins, by parameter and state key, for state that must not exist before the
    first step but will after it. `every`: parameters that require no gradient are trained too, as a framework's copies
    are, whose gradients it sets itself."""
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW):
        for group in optimizer.param_groups:
            _fill_adam(optimizer, group, every)
        return {}
    if type(optimizer) is torch.optim.SGD:
        return _stand_ins_of_sgd(optimizer, every)
    if not any(optimizer.state.values()):
        raise errors.Unsupported(f"{type(optimizer).__name__} has no state yet, and how it makes it is not known "
                                 "here: call init after the first optimizer step")
    return {}


def _fill_adam(optimizer, group, every):
    """As Adam._init_group does when it meets the first gradient."""
    for param in group["params"]:
        state = optimizer.state[param]
        if not (param.requires_grad or every) or len(state) > 0:
            continue
        if group["capturable"] or group["fused"]:
            dtype = _get_scalar_dtype(is_fused=group["fused"])
            state["step"] = torch.zeros((), dtype=dtype, device=param.device)
        else:
            state["step"] = torch.tensor(0.0, dtype=_get_scalar_dtype(), device="cpu")
        keys = ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())
        for key in keys:
            state[key] = torch.zeros_like(param, memory_format=torch.preserve_format)


def _stand_ins_of_sgd(optimizer, every):
    """SGD's first momentum is a copy of the gradient, not a sum with zeros, so a momentum of zeros would not do."""
    stand_ins = {}
    for group in optimizer.param_groups:
        for param in group["params"] if group["momentum"] != 0 else ():
            if (param.requires_grad or every) and optimizer.state[param].get("momentum_buffer") is None:
                zeros = torch.zeros_like(param, memory_format=torch.preserve_format)
                stand_ins[param] = {"momentum_buffer": zeros.detach()}
    return stand_ins
