# SPDX-License-Identifier: Apache-2.0
"""The present tensors of a model, by name.

A training may put other tensors into a model at any time: by load_state_dict(assign=True), by module.weight = ..., or
with another submodule. So only the module is kept, and names are looked up again whenever the identities or names of
its contents have changed."""

from typing import Any, TypeVar

import torch
from torch.distributed.fsdp import FSDPModule

from .. import errors

_Tensor = TypeVar("_Tensor", bound=torch.Tensor)

# What wrappers inside a model add to names; the names in state_dict() of the bare model do not have it.
_WRAPPER_NAMES = ("_orig_mod.", "_checkpoint_wrapped_module.")


def clean_name(name: str) -> str:
    for part in _WRAPPER_NAMES:
        name = name.replace(part, "")
    return name


class ModelTensors:
    def __init__(self, module: torch.nn.Module, prefix: str = "") -> None:
        """Errors show names with `prefix` before them."""
        self._module = module
        self._prefix = prefix
        self._seen: tuple[list[int], list[int], list[str]] | None = None
        self._alive: object = None  # keeps what `_seen` has the ids of, so that nothing newer can have one of them
        self._parameters: dict[str, torch.nn.Parameter] = {}
        self._buffers: dict[str, torch.Tensor] = {}
        self._owners: list[tuple[Any, ...]] = []
        self._stateful: dict[str, torch.nn.Module] = {}
        self.changes = 0
        """Incremented whenever names or tensors have changed."""
        self.look()

    def look(self) -> None:
        """Finds out whether anything has changed. Fast if nothing has."""
        modules = _modules_of(self._module)
        held: list[torch.Tensor | None] = [tensor for module in modules for tensor in module._parameters.values()]
        held += [tensor for module in modules for tensor in module._buffers.values()]
        seen = (list(map(id, modules)), list(map(id, held)), _names_in(modules))
        if seen != self._seen:
            self._name(modules)
            self.changes += 1
            self._seen, self._alive = seen, (modules, held)

    def _name(self, modules: list[torch.nn.Module]) -> None:
        sharded = _sharded_parameters(modules)
        self._parameters, self._buffers, self._owners, self._stateful, met = {}, {}, [], {}, set()
        for prefix, module in self._module.named_modules():
            if type(module).get_extra_state is not torch.nn.Module.get_extra_state:
                self._stateful[clean_name(prefix)] = module
            for own_name, parameter in module._parameters.items():
                parameter = sharded.get((id(module), own_name), parameter)
                if parameter is not None and id(parameter) not in met:
                    met.add(id(parameter))
                    self._parameters[clean_name(_join(prefix, own_name))] = parameter
            for own_name, buffer in module._buffers.items():
                if buffer is None or own_name in module._non_persistent_buffers_set or id(buffer) in met:
                    continue
                met.add(id(buffer))
                name = clean_name(_join(prefix, own_name))
                self._buffers[name] = buffer
                self._owners.append((name, module, own_name))

    def parameters(self) -> dict[str, torch.nn.Parameter]:
        """Each parameter once, a tied one under its first name."""
        return self._parameters

    def buffers(self) -> dict[str, torch.Tensor]:
        """The buffers that state_dict() has, each once."""
        return self._buffers

    def saved_buffers(self) -> list[tuple[Any, ...]]:
        """(name, module that has it, its name there) of each of these buffers."""
        return self._owners

    def stateful_modules(self) -> dict[str, torch.nn.Module]:
        """The modules with a get_extra_state(), whose values state_dict() has beside the tensors."""
        return self._stateful

    def parameter(self, name: str) -> torch.nn.Parameter:
        return _present(self._prefix + name, self._parameters.get(name))

    def buffer(self, name: str) -> torch.Tensor:
        return _present(self._prefix + name, self._buffers.get(name))


def _present(name: str, tensor: _Tensor | None) -> _Tensor:
    if tensor is None:
        raise errors.LayoutError(f"{name} was registered, and the model does not have it any more: {errors.REFRESH}")
    return tensor


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _modules_of(module: torch.nn.Module) -> list[torch.nn.Module]:
    """All modules, each once. Faster than modules(), because each save that is due calls it."""
    found: list[torch.nn.Module] = []
    met: set[int] = set()
    waiting: list[torch.nn.Module | None] = [module]
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in met:
            continue
        met.add(id(one))
        found.append(one)
        waiting.extend(one._modules.values())
    return found


def _names_in(modules: list[torch.nn.Module]) -> list[str]:
    """All names: objects may have swapped theirs, and a buffer may have become one that is saved."""
    names: list[str] = []
    for module in modules:
        names.extend(module._modules)
        names.extend(module._parameters)
        names.extend(module._buffers)
        names.extend(sorted(module._non_persistent_buffers_set))
    return names


def _sharded_parameters(modules: list[torch.nn.Module]) -> dict[tuple[int, str], torch.nn.Parameter]:
    """The sharded parameters that fully_shard keeps while its modules have gathered ones, which are not to be saved:
    between a forward and a backward pass. At other times the modules have what is to be saved, however it got there."""
    found = {}
    for module in modules:
        if not isinstance(module, FSDPModule):
            continue
        state = module._get_fsdp_state()
        groups = getattr(state, "_fsdp_param_groups", None) or [getattr(state, "_fsdp_param_group", None)]
        for parameter in (parameter for group in groups if group is not None for parameter in group.fsdp_params
                          if parameter.sharded_state.name != "SHARDED"):
            info = parameter._module_info
            places = [(info.module, info.param_name), *zip(info.shared_modules, info.shared_param_names, strict=True)]
            found.update({(id(owner), name): parameter.sharded_param for owner, name in places})
    return found
