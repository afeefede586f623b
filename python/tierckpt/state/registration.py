# SPDX-License-Identifier: Apache-2.0
"""The arguments of init, and the contents of a checkpoint that are derived from them: at first, and again in
Checkpoint.refresh, when the model or the optimizers have changed their layout."""

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch.distributed import ProcessGroup

from .. import errors
from ..runtime.world import World
from . import groups, unsaved, walk_model
from .arguments import Models, Optimizers, Schedulers, Stateful
from .blobs import Blob
from .contents import Contents, Fence, before_optimizer_step
from .foreign_optimizers import ForeignOptimizers
from .model_tensors import ModelTensors
from .module_state import ModuleState
from .probe import bare, has_state
from .records import Record
from .rng import Rng
from .sharding import Placer
from .user_state import UserState
from .walk_optimizer import OptimizerState, state_key
from .zero_redundancy import is_zero_redundancy

log = logging.getLogger("tierckpt")


def by_name(what: str, given: Any) -> dict[str, Any]:
    """The items of a dict or list, by key or number; a single object under the name ""."""
    if given is None:
        return {}
    if isinstance(given, torch.nn.Module) or not isinstance(given, (Mapping, list, tuple)):
        return {"": given}
    items = given.items() if isinstance(given, Mapping) else enumerate(given)
    named = {str(key): value for key, value in items}
    for key, value in named.items():
        if value is None or not key or "/" in key:
            raise errors.InvalidArgumentError(
                f"{what}= has {value!r:.40} under the name {key!r}: names must not be empty "
                "or contain a slash, and no value may be None")
    return named


@dataclass(frozen=True)
class Given:
    """The arguments of init that say what is saved."""

    models: dict[str, torch.nn.Module]
    optimizers: dict[str, torch.optim.Optimizer]
    schedulers: dict[str, Stateful]
    extra_state: dict[str, Any] | Stateful | None = None
    replicate_group: ProcessGroup | str | None = None
    capacity: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, model: Models, optimizer: Optimizers, scheduler: Schedulers, **others: Any) -> "Given":
        return cls(by_name("model", model), by_name("optimizer", optimizer), by_name("scheduler", scheduler),
                   **others).checked()

    def with_(self, model: Models | None = None, optimizer: Optimizers = None, scheduler: Schedulers = None,
              extra_state: dict[str, Any] | Stateful | None = None) -> "Given":
        """The same arguments, with those that are not None replaced."""
        return replace(self, models=by_name("model", model) or self.models,
                       optimizers=by_name("optimizer", optimizer) or self.optimizers,
                       schedulers=by_name("scheduler", scheduler) or self.schedulers,
                       extra_state=self.extra_state if extra_state is None else extra_state).checked()

    def checked(self) -> "Given":
        for name, model in self.models.items():
            if not isinstance(model, torch.nn.Module):
                raise errors.InvalidArgumentError(f"{_what('model', name)} must be a torch.nn.Module, and is a "
                                                  f"{type(model).__name__}")
        for name, optimizer in self.optimizers.items():
            if not isinstance(optimizer, torch.optim.Optimizer):
                raise errors.InvalidArgumentError(
                    f"{_what('optimizer', name)} must be a torch.optim.Optimizer, and is a "
                    f"{type(optimizer).__name__}")
        for name, scheduler in self.schedulers.items():
            if not (hasattr(scheduler, "state_dict") and hasattr(scheduler, "load_state_dict")):
                raise errors.InvalidArgumentError(
                    f"{_what('scheduler', name)} must have state_dict() and load_state_dict()"
                    f", and is a {type(scheduler).__name__}")
        unknown = self.capacity.keys() - set(self.blob_names())
        if unknown:
            raise errors.InvalidArgumentError(f"capacity= has {sorted(unknown)}, it knows {self.blob_names()}")
        return self

    def blob_names(self) -> list[str]:
        names = [joined("model", name) for name in self.models]
        names += [joined("optimizer", name) for name in self.optimizers or [""]]
        names += [joined("scheduler", name) for name in self.schedulers or [""]]
        return [*names, "extra_state", "rng"]


@dataclass(frozen=True)
class Parts:
    """The contents of a checkpoint, grouped by what they belong to."""

    model: list[Record]
    states: dict[str, OptimizerState]
    own: dict[str, list[Record]]
    """What belongs to single ranks, by the name of the blob that it is restored with."""
    blobs: list[Blob]

    def records(self) -> list[Record]:
        records = [*self.model, *(record for state in self.states.values() for record in state.records())]
        return records + [record for own in self.own.values() for record in own]


def joined(kind: str, name: str) -> str:
    return f"{kind}.{name}" if name else kind


def _what(kind: str, name: str) -> str:
    return f"{kind} {name!r}" if name else f"{kind}="


class Registration:
    def __init__(self, given: Given, world: World) -> None:
        self.given = given
        self._world = world
        self._stepped: set[str] = set()
        self._said: set[str] = set()
        self._told: set[str] = set()
        self._parts: Parts | None = None
        self.check_layout: Callable[[], None] = lambda: None
        """Raises LayoutError if models or optimizers have another layout than contents() has registered."""
        self.pending: list[str] = []
        """Optimizers whose state cannot be known before their first step. The first save after it registers it."""

    @property
    def parts(self) -> Parts:
        """What contents() has made."""
        if self._parts is None:
            raise errors.InternalError("contents() was not called yet")
        return self._parts

    def changed_to(self, given: Given) -> "Registration":
        """The registration of other objects by the same ranks."""
        after = Registration(given, self._world)
        after._told = self._told
        after._stepped = {name for name, optimizer in given.optimizers.items()
                          if optimizer is self.given.optimizers.get(name) and self._has_state(name)}
        return after

    def contents(self) -> Contents:
        """Creates the contents. Collective: it raises on all ranks if it does on one."""
        fault: Exception | None = None
        try:
            made = self._make()
        except Exception as error:
            fault = error
        answers = self._world.gather((None if fault is None else f"{type(fault).__name__}: {fault}", self.pending))
        if fault is not None:
            raise fault
        for rank, (text, pending) in enumerate(answers):
            if text is not None:
                raise errors.InvalidArgumentError(f"rank {rank} cannot register what it trains: {text}")
            self.pending = self.pending or pending
        return made

    def tell_of_unsaved(self) -> None:
        """Warns, on rank 0, of what the state_dict() of a model or an optimizer has beside what is saved."""
        given = self.given
        if self._world.rank != 0:
            return
        lines = [unsaved.of_model(f"model {name!r}" if name else "the model", walk_model.unwrap(model).module)
                 for name, model in given.models.items()]
        lines += [unsaved.of_optimizer(f"optimizer {name!r}" if name else "the optimizer", bare(optimizer),
                                       given.optimizers.values()) for name, optimizer in given.optimizers.items()]
        for line in filter(None, lines):
            if line not in self._told:
                self._told.add(line)
                log.warning("%s", line)

    def _make(self) -> Contents:
        given, rank = self.given, self._world.rank
        models = _Models(given, self._world)
        states = self._states(models)
        self.check_layout = partial(self._check, models, states)
        self.others = ForeignOptimizers([bare(one) for one in given.optimizers.values()], states, models,
                                        given.extra_state)
        rng, extra = Rng(), None if given.extra_state is None else UserState(given.extra_state)
        alone = Placer(rank, groups.of_ranks([rank]))
        own = {"extra_state": extra.records(alone) if extra else [], "rng": [rng.record(alone)]}
        self._parts = parts = Parts(models.records(), states, own, self._blobs(models, states, extra, rng))
        return Contents(parts.records(), parts.blobs, check=partial(self._check_save, models, states))

    def _states(self, models: "_Models") -> dict[str, OptimizerState]:
        states: dict[str, OptimizerState] = {}
        taken: set[str] = set()
        self.pending = []
        for name, optimizer in self.given.optimizers.items():
            what = f"optimizer {name!r}" if name else "the optimizer"
            try:
                state = OptimizerState(optimizer, models.parameters(), models.placer(), now=models.parameters,
                                       key=_key_of(name, taken), what=what, has_stepped=name in self._stepped)
            except errors.UnsupportedError as error:
                if has_state(bare(optimizer)) or is_zero_redundancy(optimizer):
                    raise
                log.info("%s: it is registered at the first save after its first step", error)
                self.pending.append(name)
                continue
            taken |= state.params.keys()
            states[name] = state
        return states

    # ---- before a save

    def _check(self, models: "_Models", states: dict[str, OptimizerState]) -> None:
        models.check()
        for name, state in states.items():
            state.check()
            self._tell_of_strays(name, state)
        self.others.check()

    def _check_save(self, models: "_Models", states: dict[str, OptimizerState]) -> None:
        self._check(models, states)
        if self.pending:
            raise errors.LayoutError("an optimizer whose state could not be known before its first step has not "
                                     "taken one on every rank yet: the first save after that registers it")

    def _tell_of_strays(self, name: str, state: OptimizerState) -> None:
        strays = state.strays()
        if strays and name not in self._said:
            self._said.add(name)
            log.warning("the model has other parameters by now than %s, so its steps do not change them (%d, the first "
                        "is %s). What the model has is saved. If there is a new optimizer, call "
                        "ckpt.refresh(optimizer=...) on every rank", _what("optimizer", name), len(strays), strays[0])

    def states_by_blob(self) -> dict[str, OptimizerState]:
        return {joined("optimizer", name): state for name, state in self.parts.states.items()}

    def ripe(self) -> bool:
        """Whether pending optimizers have state by now. Collective."""
        return all(self._world.gather(all(map(self._has_state, self.pending))))

    def _has_state(self, name: str) -> bool:
        """Some have it without a call of step(): SAM, for instance, is stepped by methods of its own."""
        return name in self._stepped or has_state(bare(self.given.optimizers[name]))

    # ---- the rest

    def _blobs(self, models: "_Models", states: dict[str, OptimizerState], extra: UserState | None,
               rng: Rng) -> list[Blob]:
        """In the order in which they are put back: the generators come last, as the others may draw from them."""
        capacity = self.given.capacity
        blobs = models.blobs(capacity)
        for name, state in states.items():
            blob = joined("optimizer", name)
            blobs.append(Blob(blob, state.capture, state.apply, capacity.get(blob, state.room()), reshard="any",
                              fits=state.fits, structural=blob not in capacity))
        for name, scheduler in self.given.schedulers.items():
            blob = joined("scheduler", name)
            blobs.append(Blob(blob, scheduler.state_dict, scheduler.load_state_dict, capacity.get(blob),
                              reshard="any", fits=_tried(blob, scheduler)))
        if extra is not None:
            blobs.append(extra.blob(capacity.get("extra_state")))
        return [*blobs, rng.blob(capacity.get("rng"))]

    def fences(self) -> list[Fence]:
        fences = [self._fence_of(name, bare(optimizer)) for name, optimizer in self.given.optimizers.items()]
        return [*fences, self.others.fence]

    def _fence_of(self, name: str, optimizer: torch.optim.Optimizer) -> Fence:
        def install(fence: Callable[[], None]) -> Callable[[], None]:
            def before_step() -> None:
                self._stepped.add(name)
                fence()
            return before_optimizer_step(optimizer)(before_step)
        return install


def _tried(what: str, scheduler: Stateful) -> Callable[[object], None]:
    """Finds out whether a scheduler accepts a state: loads it, and then loads the scheduler's own again."""
    def fits(value: Any) -> None:
        before = scheduler.state_dict()
        try:
            scheduler.load_state_dict(value)
        except Exception as error:
            raise errors.LayoutError(f"the {what}, a {type(scheduler).__name__}, cannot take the state that was saved: "
                                     f"{type(error).__name__}: {error}") from error
        finally:
            with contextlib.suppress(Exception):  # one that takes nothing at all has not changed either
                scheduler.load_state_dict(before)
    return fits


def _key_of(name: str, taken: set[str]) -> Callable[[str, str], str]:
    """A parameter may be in several optimizers: keys for the first one do not contain its name."""
    taken = set(taken)
    return lambda parameter, path: state_key(parameter, f"{name}.{path}" if parameter in taken else path)


@dataclass(frozen=True)
class _Part:
    """One of the models."""

    name: str
    prefix: str
    model: walk_model.Model
    placer: Placer
    tensors: ModelTensors
    names: frozenset[str]
    stateful: bool
    """Whether modules have values beside their tensors."""


class _Models:
    def __init__(self, given: Given, world: World) -> None:
        self._parts: list[_Part] = []
        bare_models = {name: walk_model.unwrap(model) for name, model in given.models.items()}
        several = len(bare_models) > 1 and any(model.ddp_group is None for model in bare_models.values())
        for name, model in bare_models.items():
            group = None if several and model.ddp_group is not None else given.replicate_group
            placer = Placer(world.rank, walk_model.plain_group(model, world.rank, world.size, group))
            prefix = f"{name}." if name else ""
            tensors = ModelTensors(model.module, prefix)
            walk_model.check_made(tensors, prefix)
            names = frozenset((*tensors.parameters(), *tensors.buffers()))
            self._parts.append(_Part(name, prefix, model, placer, tensors, names, bool(tensors.stateful_modules())))
        self._changes: list[int] | None = None
        self._parameters: dict[str, torch.Tensor] = {}

    def _look(self) -> bool:
        """Whether anything has changed since the last call."""
        for part in self._parts:
            part.tensors.look()
        changes = [part.tensors.changes for part in self._parts]
        if changes == self._changes:
            return False
        self._changes = changes
        self._parameters = {part.prefix + name: parameter for part in reversed(self._parts)
                            for name, parameter in part.tensors.parameters().items()}
        return True

    def parameters(self) -> dict[str, torch.Tensor]:
        """By name, with that of the model in front."""
        self._look()
        return self._parameters

    def records(self) -> list[Record]:
        return [record for part in self._parts for record in
                (*walk_model.parameter_records(part.model, part.placer, part.tensors, part.prefix),
                 *walk_model.buffer_records(part.model, part.placer, part.prefix, part.tensors))]

    def blobs(self, capacity: dict[str, int]) -> list[Blob]:
        """Empty for a model whose modules have nothing but tensors."""
        names = [(joined("model", part.name), part) for part in self._parts if part.stateful]
        return [ModuleState([("", part.tensors)], f"model {part.name!r}" if part.name else "the model")
                .blob(name, capacity.get(name)) for name, part in names]

    def placer(self) -> Placer:
        return self._parts[0].placer if len(self._parts) == 1 else _OfModels(self._parts)

    def check(self) -> None:
        """Raises LayoutError if a model has other tensors than were registered."""
        for part in self._parts:
            part.tensors.look()
            if part.tensors.stateful_modules() and not part.stateful:
                name = next(iter(part.tensors.stateful_modules()))
                raise errors.LayoutError(f"the extra state of module {part.prefix + name!r} came into the model after "
                                         f"it was registered, and would not be saved: {errors.REFRESH}")
            names = frozenset((*part.tensors.parameters(), *part.tensors.buffers()))
            if names == part.names:
                continue
            here = sorted(names - part.names)
            name, what = (here[0], "came into the model after it was registered, and would not be saved") if here else \
                (sorted(part.names - names)[0], "was registered, and the model does not have it any more")
            raise errors.LayoutError(f"{part.prefix}{name} {what}: {errors.REFRESH}")


class _OfModels(Placer):
    """Chooses the placer of the model to which a parameter belongs."""

    def __init__(self, parts: list[_Part]) -> None:
        super().__init__(parts[0].placer.rank, parts[0].placer.plain)
        self._parts = parts

    def of(self, name: str) -> Placer:
        fitting = [part for part in self._parts if name.startswith(part.prefix)]
        return max(fitting, key=lambda part: len(part.prefix)).placer
