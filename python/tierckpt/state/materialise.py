# SPDX-License-Identifier: Apache-2.0
"""Optimizer state before the first step.

Records are registered before training begins, but an optimizer creates its state in its first step. For Adam and AdamW
the state is created here in the same way, which does not affect training. For others stand-ins are registered: zeros of
the shapes that a step would make, which probe.py finds out. They are never seen by the optimizer unless something is
loaded.
"""

from typing import Any

import torch
from torch.optim import optimizer as torch_optimizer

from .probe import probe
from .statetree import tensors_in

StandIns = dict[torch.Tensor, dict[str, torch.Tensor]]


def materialise(optimizer: torch.optim.Optimizer, every: bool = False) -> StandIns:
    """Fills optimizer.state, or returns stand-ins, by parameter and path, for state that must not exist before the
    first step but will exist after it. `every`: also for parameters that require no gradient, such as a framework's
    copies, whose gradients it sets itself. Raises UnsupportedError if the state cannot be known in advance."""
    if type(optimizer) in (torch.optim.Adam, torch.optim.AdamW):
        for group in optimizer.param_groups:
            _fill_adam(optimizer, group, every)
        return {}
    if type(optimizer) is torch.optim.SGD:
        return _stand_ins_of_sgd(optimizer, every)
    if isinstance(optimizer, torch.optim.LBFGS):
        return _stand_ins_of_lbfgs(optimizer)
    stand_ins = {}
    for group in optimizer.param_groups:
        for param in group["params"]:
            if (param.requires_grad or every) and not optimizer.state.get(param):
                stand_ins[param] = probe(optimizer, group, param)
    return {param: tensors for param, tensors in stand_ins.items() if tensors}


def _fill_adam(optimizer: torch.optim.Optimizer, group: dict[str, Any], every: bool) -> None:
    """As Adam._init_group does when it meets the first gradient."""
    scalar_dtype: Any = torch_optimizer._get_scalar_dtype
    for param in group["params"]:
        if not (param.requires_grad or every) or optimizer.state.get(param):
            continue
        state = optimizer.state[param]  # created by this lookup, so it is not looked up for parameters that have none
        if group["capturable"] or group["fused"]:
            dtype = scalar_dtype(is_fused=group["fused"])
            state["step"] = torch.zeros((), dtype=dtype, device=param.device)
        else:
            state["step"] = torch.tensor(0.0, dtype=scalar_dtype(), device="cpu")
        keys = ("exp_avg", "exp_avg_sq") + (("max_exp_avg_sq",) if group["amsgrad"] else ())
        for key in keys:
            state[key] = torch.zeros_like(param, memory_format=torch.preserve_format)


def _stand_ins_of_sgd(optimizer: torch.optim.Optimizer, every: bool) -> StandIns:
    """SGD's first momentum is a copy of the gradient, not a sum with zeros, so a momentum of zeros would not do."""
    stand_ins = {}
    for group in optimizer.param_groups:
        for param in group["params"] if group["momentum"] != 0 else ():
            if (param.requires_grad or every) and optimizer.state.get(param, {}).get("momentum_buffer") is None:
                zeros = torch.zeros_like(param, memory_format=torch.preserve_format)
                stand_ins[param] = {"momentum_buffer": zeros.detach()}
    return stand_ins


def _stand_ins_of_lbfgs(optimizer: torch.optim.Optimizer) -> StandIns:
    """LBFGS has one state for all parameters, with a history that grows up to its limit. Numbers in it may be floats in
    one step and tensors in another."""
    group, = optimizer.param_groups
    first = group["params"][0]
    count = sum(2 * p.numel() if torch.is_complex(p) else p.numel() for p in group["params"])
    dtype = first.dtype.to_real() if torch.is_complex(first) else first.dtype
    number, flat = (), (count,)
    shapes = {"d": flat, "prev_flat_grad": flat, "H_diag": number, "t": number}
    for i in range(group["history_size"]):
        shapes |= {f"old_dirs.{i}": flat, f"old_stps.{i}": flat, f"ro.{i}": number, f"al.{i}": number}
    present = tensors_in(optimizer.state.get(first, {}))
    stand_ins = {path: torch.zeros(shape, dtype=dtype, device=first.device) for path, shape in shapes.items()
                 if path not in present}
    return {first: stand_ins}
