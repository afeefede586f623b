# SPDX-License-Identifier: Apache-2.0
"""From an optimizer to records of its state tensors, and one JSON value with everything else in it."""

from collections import Counter

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import DTensor

from . import errors, groups
from .materialise import materialise
from .placer import Placer
from .records import Record


def state_key(parameter_name: str, key: str) -> str:
    return f"optimizer.{parameter_name}.{key}"


class OptimizerState:
    """The state of a torch optimizer; of a ZeroRedundancyOptimizer the part that this rank keeps."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: dict[str, torch.Tensor], placer: Placer,
                 every: bool = False):
        """`every` as for materialise."""
        self._outer = optimizer
        self._inner = _inner_optimizer(optimizer)
        self._placer = placer if self._inner is optimizer else placer.with_plain(groups.of_ranks([placer.rank]))
        names = {id(parameter): name for name, parameter in parameters.items()}
        self._params = _named_params(self._inner, names)
        self._stand_ins = materialise(self._inner, every)
        self._tensors = {(name, key) for name, param in self._params.items()
                         for key in self._tensor_keys(param)}
        self._count = Counter(name for name, _ in self._tensors)
        self._states: dict[str, dict] = {}
        self._seen = None
        self._look()

    def _look(self):
        """Finds each parameter's state dict again, if the optimizer has put others in their place. The dicts seen are
        kept, so none that came later can have the identity of one of them."""
        state = self._inner.state
        seen = (list(map(id, state)), list(map(id, state.values())))
        if seen != self._seen:
            self._states = {name: state.get(param, {}) for name, param in self._params.items()}
            self._seen = seen

    # ---- tensors

    def _tensor_keys(self, param) -> set[str]:
        present = {key for key, value in self._inner.state.get(param, {}).items() if torch.is_tensor(value)}
        return present | self._stand_ins.get(param, {}).keys()

    def _tensor(self, param, key: str) -> torch.Tensor:
        value = self._inner.state.get(param, {}).get(key)
        if value is None:
            value = self._stand_ins.get(param, {}).get(key)
        if value is None:
            raise errors.LayoutError(f"the optimizer has lost {key} of a parameter of shape {tuple(param.shape)}: "
                                     "close this checkpoint and call init again")
        return value

    def records(self) -> list[Record]:
        made = (self._record(name, key) for name, key in sorted(self._tensors))
        return [record for record in made if record is not None]

    def _record(self, name: str, key: str) -> Record | None:
        param, full_key, placer = self._params[name], state_key(name, key), self._placer.of(name)

        def find():
            value = self._states[name].get(key)
            return self._tensor(param, key) if value is None else value

        tensor = find()
        if not isinstance(param, DTensor) or isinstance(tensor, DTensor):
            return placer.record(full_key, find, eager=tensor.dim() == 0, look=self._look)
        if key == "step" and tensor.dim() == 0:
            return placer.step_like(full_key, find, param, look=self._look)
        return placer.private(full_key, find, look=self._look)

    def check(self):
        """Before a save. Raises if there is a state tensor that was not there at registration: it would not be
        saved. Lets go of stand-ins whose state has come."""
        for param in [param for param in self._stand_ins if self._inner.state.get(param)]:
            left = {key: tensor for key, tensor in self._stand_ins.pop(param).items()
                    if self._inner.state[param].get(key) is None}
            if left:
                self._stand_ins[param] = left
        for name, param in self._params.items():
            if len(self._inner.state.get(param, ())) <= self._count[name]:
                continue
            for key in self._tensor_keys(param):
                if (name, key) not in self._tensors:
                    raise errors.LayoutError(f"{state_key(name, key)} came into being after init: close this "
                                             "checkpoint and call init again")

    # ---- the rest

    def capture(self) -> dict:
        self._look()
        return {
            "outer": [_hyperparameters(group) for group in self._outer.param_groups],
            "inner": [_hyperparameters(group) for group in self._inner.param_groups],
            "values": {name: values for name, state in self._states.items() if (values := _values(state))},
            "absent": [[name, key] for name, param in self._params.items() for key in self._stand_ins.get(param, ())
                       if self._states[name].get(key) is None] if self._stand_ins else [],
        }

    def room(self) -> int:
        """Bytes that `capture` may come to need, from the structure alone: the same before and after any step."""
        names = sum(len(name) + len(key) + 128 for name, key in self._tensors)
        return 64 * 1024 + 4096 * (len(self._outer.param_groups) + len(self._inner.param_groups)) + names

    def apply(self, saved: dict):
        """Puts `capture`'s value back. The records are in place already."""
        _restore_groups("param_groups", self._outer.param_groups, saved["outer"])
        _restore_groups("inner param_groups", self._inner.param_groups, saved["inner"])
        absent = {(name, key) for name, key in saved["absent"]}
        for name, key in self._tensors:
            self._put(name, key, (name, key) in absent)
        for name, values in saved["values"].items():
            if name in self._params:  # those of a rank that was another one's may be others
                self._inner.state[self._params[name]].update(values)

    def _put(self, name: str, key: str, absent: bool):
        """Makes a stand-in the real state, or real state a stand-in, as it was when it was saved."""
        param = self._params[name]
        tensor = self._tensor(param, key)
        if absent:
            self._stand_ins.setdefault(param, {})[key] = tensor
            self._inner.state.get(param, {}).pop(key, None)
        else:
            self._inner.state[param][key] = tensor


def _inner_optimizer(optimizer):
    if not isinstance(optimizer, ZeroRedundancyOptimizer):
        return optimizer
    if optimizer._overlap_with_ddp:
        raise errors.Unsupported("ZeroRedundancyOptimizer(overlap_with_ddp=True) is not supported")
    if torch.distributed.get_world_size(optimizer.process_group) != torch.distributed.get_world_size():
        raise errors.Unsupported("ZeroRedundancyOptimizer over a part of the ranks is not supported")
    return optimizer.optim


def _named_params(optimizer, names: dict[int, str]) -> dict[str, torch.Tensor]:
    params = {}
    for number, group in enumerate(optimizer.param_groups):
        for param in group["params"]:
            if id(param) not in names:
                raise errors.InvalidArgument(f"group {number} of the optimizer has a parameter of shape "
                                             f"{tuple(param.shape)} that the model does not have (make the "
                                             "optimizer after wrapping the model)")
            params[names[id(param)]] = param
    return params


def _values(state: dict) -> dict:
    return {key: value for key, value in state.items() if not isinstance(value, torch.Tensor)}


def _hyperparameters(group: dict) -> dict:
    return {key: value for key, value in group.items() if key != "params"}


def _restore_groups(what: str, groups_now: list[dict], saved: list[dict]):
    if len(groups_now) != len(saved):
        raise errors.LayoutError(f"the optimizer has {len(groups_now)} {what}, {len(saved)} were saved")
    for group, values in zip(groups_now, saved):
        group.update(values)
