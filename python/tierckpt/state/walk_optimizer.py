"""From an optimizer to the records of its state tensors, and one JSON value with everything else.

Parameters are known by their place in the optimizer's groups. A program may put other parameters and other states
there; what is saved is always what the optimizer has at that moment."""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from .. import errors
from . import groups
from .materialise import StandIns, materialise
from .probe import bare, states_by_parameter
from .records import Record
from .sharding import Placer
from .statetree import join, rest_of, tensors_in
from .zero_redundancy import is_zero_redundancy


def state_key(parameter_name: str, key: str) -> str:
    return f"optimizer.{parameter_name}.{key}"


class OptimizerState:
    """The state of a torch optimizer; for a ZeroRedundancyOptimizer the part that this rank keeps."""

    def __init__(self, optimizer: torch.optim.Optimizer, parameters: dict[str, torch.Tensor], placer: Placer,
                 every: bool = False, *, now: Callable[[], dict[str, torch.Tensor]] | None = None,
                 key: Callable[[str, str], str] = state_key, what: str = "the optimizer",
                 has_stepped: bool = False) -> None:
        """every        as for materialise
        now          returns the present `parameters`, if they can change
        key          makes the key of a record from the name of a parameter and the path in its state
        what         names the optimizer in errors
        has_stepped  True: the state exists by now, even if it could not be known in advance"""
        self._outer = bare(optimizer)
        self._inner = _inner_optimizer(self._outer)
        self._placer = placer if self._inner is self._outer else placer.with_plain(groups.of_ranks([placer.rank]))
        self._now = now or (lambda: parameters)
        self._key, self._what = key, what
        self._group_names = self._first_names()
        self._params: dict[str, torch.Tensor] = {}
        self._states: dict[str, dict[str, Any]] = {}
        self._found: dict[str, dict[str, torch.Tensor]] = {}
        self._seen: tuple[Any, ...] | None = None
        self._checked: tuple[Any, ...] | None = None
        self._alive: object = None
        self._tensors: set[tuple[str, str]] = set()
        self._stand_ins: dict[str, dict[str, torch.Tensor]] = {}
        made = _made_ahead(self._inner, every, has_stepped)
        self._look()
        self._stand_ins = {name: made[param] for name, param in self._params.items() if param in made}
        self._tensors = {(name, path) for name in self._params
                         for path in self._found[name].keys() | self._stand_ins.get(name, {}).keys()}

    # ---- what there is now

    def _first_names(self) -> list[list[str]]:
        """The names of the parameters of each group."""
        names = {id(parameter): name for name, parameter in self._now().items()}
        for number, group in enumerate(self._inner.param_groups):
            for param in group["params"]:
                if id(param) not in names:
                    raise errors.InvalidArgumentError(f"group {number} of {self._what} has a parameter of shape "
                                                      f"{tuple(param.shape)} that the model does not have (create the "
                                                      "optimizer after wrapping the model, and give init every model "
                                                      "whose parameters it has)")
        return [[names[id(param)] for param in group["params"]] for group in self._inner.param_groups]

    def _look(self) -> None:
        """Finds parameters and states again if the optimizer has others. The objects whose identities `_seen` has are
        kept alive, so that no later object can have one of them."""
        held = [group["params"] for group in self._inner.param_groups]
        params = list(chain.from_iterable(held))
        states = states_by_parameter(self._inner).values()
        values = list(chain.from_iterable(map(dict.values, states)))
        seen = (list(map(len, held)), list(map(id, params)), list(map(id, self._inner.state)), list(map(id, values)))
        if seen == self._seen and not any(isinstance(value, (list, dict)) for value in values):
            return
        if self._seen is None or seen[:2] != self._seen[:2]:
            self._params = self._name(held)
        self._states = {name: self._inner.state.get(param, {}) for name, param in self._params.items()}
        before, self._found = self._found, {name: tensors_in(state) for name, state in self._states.items()}
        self._stand_in_for_missing(before)
        self._seen, self._alive = seen, (params, list(self._inner.state), values)

    def _stand_in_for_missing(self, before: dict[str, dict[str, torch.Tensor]]) -> None:
        """A tensor of one step may be a number in the next, as in LBFGS, or may be missing."""
        for name, tensors in before.items():
            for path in tensors.keys() - self._found.get(name, {}).keys() if self._states.get(name) else ():
                if (name, path) in self._tensors:
                    self._stand_ins.setdefault(name, {})[path] = torch.zeros_like(tensors[path])

    def _name(self, held: list[list[torch.Tensor]]) -> dict[str, torch.Tensor]:
        """A parameter of the model has the name that the model gives it; any other one the name of its predecessor."""
        names = {id(parameter): name for name, parameter in self._now().items()}
        params: dict[str | None, torch.Tensor] = {}
        for number, group in enumerate(held):
            before = self._group_names[number] if number < len(self._group_names) else []
            for place, param in enumerate(group):
                name = names.get(id(param), before[place] if place < len(before) else None)
                params[name] = param
        registered = list(chain.from_iterable(self._group_names))
        other = sorted((str(name) for name in params.keys() ^ set(registered)), key=registered.count)
        if other or len(params) != sum(map(len, held)):
            raise errors.LayoutError(f"{self._what} has other parameters than were registered, among them "
                                     f"{other[0] if other else 'one that it has twice'}: {errors.REFRESH}")
        return {str(name): param for name, param in params.items()}

    @property
    def optimizers(self) -> list[torch.optim.Optimizer]:
        """The optimizer that was given, and the one inside it."""
        return [self._outer, self._inner]

    @property
    def params(self) -> dict[str, torch.Tensor]:
        self._look()
        return self._params

    def strays(self) -> list[str]:
        """Names of parameters of which the model has another tensor by now than the optimizer."""
        self._look()
        now = self._now()
        return [name for name, param in self._params.items() if now.get(name) is not param]

    # ---- tensors

    def _tensor(self, name: str, path: str) -> torch.Tensor:
        value = self._found[name].get(path)
        if value is None:
            value = self._stand_ins.get(name, {}).get(path)
        if value is None:
            raise errors.LayoutError(f"{self._what} has lost {path} of {name}: {errors.REFRESH}")
        return value

    def records(self) -> list[Record]:
        made = (self._record(name, path) for name, path in sorted(self._tensors))
        return [record for record in made if record is not None]

    def records_by_parameter(self) -> dict[str, list[Record]]:
        """The records of each parameter of this optimizer; empty lists for those without state."""
        records: dict[str, list[Record]] = {name: [] for name in self._params}
        for name, path in sorted(self._tensors):
            records[name] += filter(None, [self._record(name, path)])
        return records

    def _record(self, name: str, path: str) -> Record | None:
        param, full_key, placer = self._params[name], self._key(name, path), self._placer.of(name)

        def find() -> torch.Tensor:
            value = self._found[name].get(path)
            return self._tensor(name, path) if value is None else value

        tensor = find()
        if not isinstance(param, DTensor) or isinstance(tensor, DTensor):
            return placer.record(full_key, find, eager=tensor.dim() == 0, look=self._look)
        if path == "step" and tensor.dim() == 0:
            return placer.step_like(full_key, find, param, look=self._look)
        return placer.private(full_key, find, look=self._look)

    def check(self) -> None:
        """Before a save. Raises LayoutError if there is a state tensor that was not there at registration, which would
        not be saved. Drops stand-ins whose state exists by now."""
        self._look()
        if self._checked is self._seen:
            return
        for name, found in self._found.items():
            for path in found:
                if (name, path) not in self._tensors:
                    raise errors.LayoutError(f"{self._key(name, path)} came into being after it was registered: "
                                             f"{errors.REFRESH}")
        for name in [name for name in self._stand_ins if self._states[name]]:
            left = {path: tensor for path, tensor in self._stand_ins.pop(name).items()
                    if path not in self._found[name]}
            if left:
                self._stand_ins[name] = left
        self._checked = self._seen

    # ---- the rest

    def capture(self) -> dict[str, Any]:
        self._look()
        return {
            "outer": [_hyperparameters(group) for group in self._outer.param_groups],
            "inner": [_hyperparameters(group) for group in self._inner.param_groups],
            "params": self._groups() if self._inner is self._outer else None,
            "values": {name: values for name, state in self._states.items() if (values := rest_of(state))},
            "shared": _shared(self._inner),
            "absent": [[name, path] for name, tensors in self._stand_ins.items() for path in tensors
                       if path not in self._found[name]],
        }

    def _groups(self) -> list[list[str]]:
        """The names of the parameters of each group, as they are now."""
        names = {id(param): name for name, param in self._params.items()}
        return [[names[id(param)] for param in group["params"]] for group in self._inner.param_groups]

    def room(self) -> int:
        """How many bytes `capture` may come to need. It follows from the structure alone, so it is the same before and
        after any step."""
        names = sum(len(name) + len(key) + 128 for name, key in self._tensors)
        names += sum(len(name) + 8 for name in self._params)
        return 64 * 1024 + 4096 * (len(self._outer.param_groups) + len(self._inner.param_groups)) + names

    def fits(self, saved: dict[str, Any]) -> None:
        """Raises LayoutError unless `apply` can put this value back."""
        self._look()
        self.fits_groups(saved)
        if saved.get("params") is None or self._inner is not self._outer:
            return
        place = {name: number for number, names in enumerate(saved["params"]) for name in names}
        for number, names in enumerate(self._groups()):
            for name in names:
                if place.get(name) != number:
                    where = f"in its group {place[name]}" if name in place else "in none of its groups"
                    raise errors.LayoutError(f"{self._what} has {name} in its group {number}; when it was saved, it "
                                             f"was {where}")

    def fits_groups(self, saved: dict[str, Any]) -> None:
        """The same for the numbers of groups alone, where other ranks may have had other parameters."""
        _check_groups(f"groups of {self._what}", self._outer.param_groups, saved["outer"])
        _check_groups(f"inner groups of {self._what}", self._inner.param_groups, saved["inner"])

    def has_places_for(self, name: str, saved: dict[str, Any]) -> bool:
        """Whether the tensors inside other values of this parameter's state are known here."""
        return all((name, path) in self._tensors for path in _paths_in(saved["values"].get(name, {})))

    def without(self, saved: dict[str, Any], left: set[str]) -> tuple[dict[str, Any], str | None]:
        """For apply: the value without the parameters `left`, whose state stays as it is. Also returns why the settings
        of the groups, such as the learning rate, stay as they are, if they do: common parameters are in other groups
        now."""
        now, why = self.capture(), self._groups_moved(saved)
        value = {**saved, "values": {name: values for name, values in saved["values"].items() if name not in left},
                 "absent": [pair for pair in saved["absent"] if pair[0] not in left]}
        value["absent"] += [pair for pair in now["absent"] if pair[0] in left]
        value["values"].update({name: values for name, values in now["values"].items() if name in left})
        return value if why is None else {**value, "outer": now["outer"], "inner": now["inner"]}, why

    def _groups_moved(self, saved: dict[str, Any]) -> str | None:
        now = [len(self._outer.param_groups), len(self._inner.param_groups)]
        if [len(saved["outer"]), len(saved["inner"])] != now:
            return f"{len(saved['outer'])} groups of parameters were saved, and there are {now[0]}"
        if saved.get("params") is None or self._inner is not self._outer:
            return None
        place = {name: number for number, names in enumerate(saved["params"]) for name in names}
        moved = (f"{name} was saved in group {place[name]} and is in group {number}"
                 for number, names in enumerate(self._groups()) for name in names if place.get(name, number) != number)
        return next(moved, None)

    def apply(self, saved: dict[str, Any]) -> None:
        """Puts a value of `capture` back, when the records are in place. Raises LayoutError if it has other groups."""
        self._look()
        self.fits_groups(saved)
        _restore_groups(self._outer.param_groups, saved["outer"])
        _restore_groups(self._inner.param_groups, saved["inner"])
        absent = {(name, path) for name, path in saved["absent"]}
        tensors = {(name, path): self._tensor(name, path) for name, path in self._tensors}
        inside: set[tuple[str, str]] = set()  # of a list: what is put there together with it
        self._forget(saved["values"], {name for name, _ in absent})
        _restore_shared(self._inner, saved.get("shared", {}))
        for name, values in saved["values"].items():
            if name in self._params:  # those of a rank that was another one's may be others
                inside |= {(name, path) for path in _paths_in(values)}
                joined = join(values, partial(self._tensor, name))
                self._inner.state[self._params[name]].update(joined)
        for (name, path), tensor in tensors.items():
            if (name, path) not in inside:
                self._put(name, path, tensor, (name, path) in absent, path in saved["values"].get(name, ()))
        _tell_of_load(self._inner)
        self._seen = None

    def _forget(self, values: dict[str, dict[str, Any]], known: set[str]) -> None:
        """Removes values other than tensors that the state did not have when it was saved."""
        for name in (known | values.keys()) & self._states.keys():
            for key in rest_of(self._states[name]).keys() - values.get(name, {}).keys():
                del self._states[name][key]

    def _put(self, name: str, path: str, tensor: torch.Tensor, absent: bool, replaced: bool) -> None:
        """Turns a stand-in into the real state, or real state into a stand-in, as it was in the save. `replaced`: it
        was something other than a tensor then, which is in place already."""
        if not absent:
            self._inner.state[self._params[name]][path] = tensor
            return
        self._stand_ins.setdefault(name, {})[path] = tensor
        if not replaced and self._states[name]:
            self._inner.state[self._params[name]].pop(path, None)


def _paths_in(values: dict[str, Any]) -> set[str]:
    """The paths of the tensors inside these values."""
    paths: set[str] = set()
    join(values, paths.add)
    return paths


def _inner_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    inner: torch.optim.Optimizer = optimizer
    if not is_zero_redundancy(optimizer):
        return inner
    if optimizer._overlap_with_ddp:
        raise errors.UnsupportedError("ZeroRedundancyOptimizer(overlap_with_ddp=True) is not supported")
    if torch.distributed.get_world_size(optimizer.process_group) != torch.distributed.get_world_size():
        raise errors.UnsupportedError("ZeroRedundancyOptimizer over a part of the ranks is not supported")
    inner = optimizer.optim
    return inner


def _made_ahead(optimizer: torch.optim.Optimizer, every: bool, has_stepped: bool) -> StandIns:
    try:
        return materialise(optimizer, every)
    except errors.UnsupportedError:
        if has_stepped:
            return {}
        raise


def _hyperparameters(group: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key != "params"}


def _shared(optimizer: torch.optim.Optimizer) -> dict[Any, Any]:
    """What an optimizer keeps in its state beside the states of parameters, such as a count of its steps."""
    return {key: value for key, value in optimizer.state.items() if not torch.is_tensor(key)}


def _restore_shared(optimizer: torch.optim.Optimizer, saved: dict[Any, Any]) -> None:
    state: dict[Any, Any] = optimizer.state
    for key in _shared(optimizer).keys() - saved.keys():
        del state[key]
    state.update(saved)


def _tell_of_load(optimizer: torch.optim.Optimizer) -> None:
    """As Optimizer.load_state_dict does: a class makes what another class or version has saved its own. AdamW, for
    instance, decouples its weight decay again after it has taken the groups of an Adam."""
    optimizer.__setstate__({"state": optimizer.state, "param_groups": optimizer.param_groups})


def _check_groups(what: str, groups_now: list[dict[str, Any]], saved: list[dict[str, Any]]) -> None:
    if len(groups_now) != len(saved):
        raise errors.LayoutError(f"there are {len(groups_now)} {what}, {len(saved)} were saved")


def _restore_groups(groups_now: list[dict[str, Any]], saved: list[dict[str, Any]]) -> None:
    for group, values in zip(groups_now, saved, strict=True):
        for key, value in values.items():
            if torch.is_tensor(group.get(key)):  # a learning rate that a graph may have the address of
                group[key].copy_(torch.as_tensor(value))
            else:
                group[key] = value
