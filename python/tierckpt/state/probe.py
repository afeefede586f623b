# SPDX-License-Identifier: Apache-2.0
"""What state an optimizer will create in its first step. A copy of it does one step with a tensor of the same shape, on
the meta device if that works, otherwise on the parameter's. The optimizer itself and its parameters are not touched."""


import copy
from collections import OrderedDict, defaultdict
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .. import errors
from .records import local_of
from .statetree import tensors_in


def bare(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """The optimizer inside wrappers that add nothing to its state, such as Accelerate's."""
    while True:
        inner = getattr(optimizer, "optimizer", None)
        if not isinstance(inner, torch.optim.Optimizer) or inner.state is not optimizer.state \
                or inner.param_groups is not optimizer.param_groups:
            return optimizer
        optimizer = inner


def states_by_parameter(optimizer: torch.optim.Optimizer) -> dict[torch.Tensor, dict[Any, Any]]:
    """The states of parameters. An optimizer may keep more in its state, under keys that are no parameters. Raises
    InvalidArgumentError if the state of a parameter is no dict."""
    states = {key: state for key, state in optimizer.state.items() if torch.is_tensor(key)}
    for state in states.values():
        if not isinstance(state, dict):
            raise errors.InvalidArgumentError(
                f"{type(optimizer).__name__} keeps a {type(state).__name__} as the state of a parameter, and only a "
                'dict can be saved: let it keep state[parameter]["name"] = ... instead')
    return states


def has_state(optimizer: torch.optim.Optimizer) -> bool:
    """Whether it has state of any parameter."""
    return any(states_by_parameter(optimizer).values())


def probe(optimizer: torch.optim.Optimizer, group: dict[str, Any], param: torch.Tensor) -> dict[str, torch.Tensor]:
    """Zeros for the state tensors, by path, that a step makes for a parameter of this group. Raises UnsupportedError if
    that cannot be found out."""
    if isinstance(optimizer, torch.optim.SparseAdam):
        return {key: torch.zeros_like(param).detach() for key in ("exp_avg", "exp_avg_sq")}
    found = _after_a_step(optimizer, group, param, "meta")
    if found is None:
        found = _after_a_step(optimizer, group, param, None)
    if found is None:
        raise errors.UnsupportedError(f"{type(optimizer).__name__} has no state yet, and how it makes it could not be "
                                      "found out: call init after the first optimizer step")
    return {path: _stand_in(made, group, param) for path, made in found.items()}


def _after_a_step(optimizer: torch.optim.Optimizer, group: dict[str, Any], param: torch.Tensor,
                  device: str | None) -> dict[str, torch.Tensor] | None:
    template = torch.zeros_like(param, device=device).detach().requires_grad_(True)
    twin = _twin(optimizer, group, template)
    if twin is None:
        return None
    step: Any = type(optimizer).step
    step = step.__wrapped__ if getattr(step, "hooked", False) else step  # without hooks, which would count it
    template.grad = torch.zeros_like(template)
    try:
        with torch.random.fork_rng(devices=[]):
            step(twin)
    except Exception:  # whatever it says: it cannot be found out in this way
        return None
    return tensors_in(states_by_parameter(twin).get(template, {}))


def _twin(optimizer: torch.optim.Optimizer, group: dict[str, Any],
          template: torch.Tensor) -> torch.optim.Optimizer | None:
    """An optimizer of the same class with one parameter; None if a step of it might change something of the real
    one."""
    attributes = {key: value for key, value in vars(optimizer).items()
                  if key not in ("step", "state", "param_groups", "grad_scale", "found_inf")}
    if not all(_is_own(value) for value in attributes.values()):
        return None
    twin = object.__new__(type(optimizer))
    vars(twin).update({key: OrderedDict() if isinstance(value, OrderedDict) else copy.deepcopy(value)
                       for key, value in attributes.items()})
    twin.state = defaultdict(dict)
    settings = {key: copy.deepcopy(value) for key, value in group.items() if key not in ("params", "param_names")}
    settings.update({key: False for key in ("foreach", "fused") if key in settings})
    twin.param_groups = [{**settings, "params": [template]}]
    return twin


def _is_own(value: Any) -> bool:
    """Whether a copy of this value shares nothing with it: it contains no other optimizer, module or tensor. Hooks are
    left out of copies anyway."""
    if isinstance(value, (OrderedDict, type(None), bool, int, float, complex, str, bytes, type, torch.dtype,
                          torch.device)):
        return True
    if type(value) in (dict, defaultdict):
        return all(map(_is_own, value.values()))
    if type(value) in (list, tuple, set):
        return all(map(_is_own, value))
    return torch.is_tensor(value) and value.dim() == 0 and not value.requires_grad  # a learning rate


def _stand_in(made: torch.Tensor, group: dict[str, Any], param: torch.Tensor) -> torch.Tensor:
    if isinstance(made, DTensor):
        local = torch.zeros(local_of(made).shape, dtype=made.dtype, device=local_of(param).device)
        return DTensor.from_local(local, made.device_mesh, made.placements, run_check=False, shape=made.shape,
                                  stride=made.stride())
    on_device = made.is_meta or (made.dim() == 0 and (group.get("fused") or group.get("capturable")))
    dtype = torch.float32 if made.dim() == 0 and group.get("fused") else made.dtype
    return torch.zeros(made.shape, dtype=dtype, device=param.device if on_device else made.device)
