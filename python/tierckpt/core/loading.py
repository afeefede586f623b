# SPDX-License-Identifier: Apache-2.0
"""Partial loads, and loads by programs that are not part of the job: for an evaluation, or a start from other weights.

Both read published versions. If only memory has the newest one, its agents publish it first; nothing is attached."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch

from .. import errors
from ..runtime import native
from ..runtime.notices import few
from ..runtime.settings import ConfigSource, Overrides
from ..runtime.world import World, join_world
from ..state import arguments, groups, jsonstate
from ..state.arguments import Models, Optimizers, Schedulers, Stateful
from ..state.blobs import Blob
from ..state.probe import bare
from ..state.records import Record, check_tensor, pieces_of, pour, saved_dtype, saved_shape
from ..state.registration import Given, Registration, joined
from ..state.sharding import rank_key, split_rank
from ..state.statetree import join
from ..state.walk_model import unwrap
from ..state.walk_optimizer import OptimizerState
from .publish_first import newest_published
from .published import Published, is_directory, open_published

log = logging.getLogger("tierckpt")



@dataclass
class Loaded:
    """What a load has restored on this rank. Tensors are listed by their keys, other values by name: "optimizer" (its
    settings), "scheduler", "extra_state" and "rng", followed by a dot and a name if there are several."""

    step: int
    version: native.Version
    """Term and step."""
    loaded: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """What this program has and was not saved: it is unchanged."""
    unexpected: list[str] = field(default_factory=list)
    """What was saved and this program does not have. An optimizer, scheduler or extra_state that was not given is one
    entry."""
    mismatched: list[str] = field(default_factory=list)
    """What was saved but does not fit, because its shape or dtype differs: it is unchanged. `why` says more."""
    why: dict[str, str] = field(default_factory=dict)

    def refuse(self, name: str, why: str) -> None:
        if name not in self.why:
            self.mismatched.append(name)
            self.why[name] = why

    def names(self) -> str:
        """The first of each list, for a line of the log."""
        lists = (("do not fit", [f"{name} ({self.why[name]})" for name in self.mismatched]),
                 ("were not saved", self.missing), ("have no place here", self.unexpected))
        return "; ".join(f"{what}: {few(names)}" for what, names in lists if names)


def load(model: Models, optimizer: Optimizers = None, scheduler: Schedulers = None,
         extra_state: dict[str, Any] | Stateful | None = None, *, config: ConfigSource = None,
         overrides: Overrides = None, step: int | None = None, strict: bool = True) -> Loaded | None:
    """Loads a version into a model, and into optimizer, scheduler and extra_state if they are given, without being part
    of the job: for an evaluation, also while the training runs, or for a fine-tuning. It needs no agent, and does not
    disturb running ones. If memory has a newer version than storage, the running agents publish it first. Collective
    over the ranks of this program; their number and sharding may differ from those that saved. In a program that then
    continues to train, call it before init.

    model, optimizer, scheduler, extra_state   as for init. A model that is neither wrapped nor sharded is loaded as a
                       whole on each rank. Random number generators stay as they are
    config, overrides  as for init; or config is the directory of one version
    step               which step to load; None: the newest
    strict             True: all weights that were saved under the names of these models, all their tensors, and the
                       states of the given optimizers must match, or else a LayoutError is raised on every rank, with
                       nothing changed. Optimizers that are left out and schedulers that were not saved are accepted in
                       any case. False: whatever fits is loaded

    Returns what was loaded and what was not; None if nothing was ever saved. Raises IoError or CorruptError if the
    version cannot be read or save_dir does not exist; LayoutError or UnrecoverableError if only memory has it and it
    cannot be published."""
    arguments.check(model, optimizer, scheduler)
    world = join_world()
    given = Given.of(model, optimizer, scheduler, extra_state=extra_state)
    given = Given.of(model, optimizer, scheduler, extra_state=extra_state, replicate_group=_copies(given))
    undo = _states_made_from_here(given)
    try:
        registration = Registration(given, world)
        registration.contents()
        published = open_on_all(world, config, overrides, step)
        if published is None:
            undo()
            return None
        with published:
            return fill(registration, published, world, strict, generators=False)
    except BaseException:
        undo()
        raise


def _copies(given: Given) -> str | None:
    """Lets each rank load all of a plain tensor: for a load it does not matter which ranks hold the same one."""
    wrapped = [unwrap(model).ddp_group is not None for model in given.models.values()]
    return None if all(wrapped) else groups.PRIVATE


def _states_made_from_here(given: Given) -> Callable[[], None]:
    """Registering creates states in optimizers that have not stepped. Returns a function that removes them."""
    optimizers = [bare(optimizer) for optimizer in given.optimizers.values()]
    optimizers += [optimizer.optim for optimizer in optimizers if hasattr(optimizer, "optim")]
    had = [{key for key, state in optimizer.state.items() if not isinstance(state, dict) or state}
           for optimizer in optimizers]

    def undo() -> None:
        for optimizer, keys in zip(optimizers, had, strict=True):
            for key in [key for key in optimizer.state if key not in keys]:
                del optimizer.state[key]
    return undo


def open_on_all(world: World, config: ConfigSource, overrides: Overrides, step: int | None) -> Published | None:
    """Opens the same version on all ranks; returns None if nothing was saved. If only memory has it, it is published
    first. Collective."""
    published, fault = None, None
    if world.rank == 0:
        try:
            published = newest_published(config, overrides, step)
        except Exception as error:
            fault = error
    version, absent, text = world.gather((published and tuple(published.version),
                                          isinstance(fault, errors.NotFoundError),
                                          fault and f"{type(fault).__name__}: {fault}"))[0]
    if absent:
        return None
    if version is None:
        raise fault or errors.IoError(f"rank 0 has found nothing to load: {text}")
    return world.agreed(lambda: published or _the_same(config, overrides, version))


def _the_same(config: ConfigSource, overrides: Overrides, version: native.Version) -> Published:
    published = open_published(config, step=None if is_directory(config) else version[1], overrides=overrides)
    if tuple(published.version) != version:
        raise errors.IoError(f"rank 0 loads step {version[1]} of term {version[0]}, and here {published.info.path} is "
                             "the newest: save_dir must be the same directory on all nodes")
    return published


def fill(registration: Registration, published: Published, world: World, strict: bool, generators: bool) -> Loaded:
    """Collective. Everything is checked and read before anything is changed."""
    plan = world.agreed(lambda: _Plan(registration, published, world, generators))
    plan.note_unexpected(set().union(*world.gather(plan.wanted())))
    said = world.gather(plan.complaint())
    complaint = next((text for text in said if text is not None), None)
    if strict and complaint is not None:
        raise errors.LayoutError(f"step {published.step} ({published.info.path}) is not loaded: {complaint}. "
                                 "strict=False loads what fits")
    world.agreed(plan.read)
    plan.apply()
    if world.rank == 0:
        left = plan.outcome.names()
        log.info("step %d is loaded: %d tensors and values%s", published.step, len(plan.outcome.loaded),
                 f"; {left}" if left else "")
    return plan.outcome


class _Plan:
    """What is loaded, and from where. Nothing is changed before apply."""

    def __init__(self, registration: Registration, published: Published, world: World, generators: bool) -> None:
        self._parts, self._given = registration.parts, registration.given
        self._published, self._world = published, world
        self._generators = generators
        self.outcome = Loaded(published.step, published.version)
        self._blobs = {entry.key for entry in published.entries if entry.blob}
        self._sources: dict[str, str] = {}
        self._fitting: list[Record] = []
        self._staged: list[torch.Tensor] = []  # one for each of these
        self._values: list[tuple[Blob, object]] = []
        self._no_harm: set[str] = set()  # what may be missing in a strict load
        blobs = {blob.name: blob for blob in self._parts.blobs}
        self._plan_model()
        for name, state in self._parts.states.items():
            self._plan_optimizer(blobs.pop(joined("optimizer", name)), state)
        for name in registration.pending:
            self.outcome.refuse(joined("optimizer", name), "what state it makes is known only after its first step")
        for blob in blobs.values():
            self._plan_value(blob, self._parts.own.get(blob.name))

    # ---- tensors

    def _source(self, key: str) -> str | None:
        """A tensor that belongs to single ranks comes from the same rank, or else from the one that has the plain
        name."""
        own = rank_key(self._world.rank, "")
        name = key.removeprefix(own)
        return next((other for other in (own + name, name, rank_key(0, name)) if other in self._published), None)

    def _fitting_of(self, records: list[Record]) -> list[Record]:
        """Those that can be loaded. The others are put into one of the lists."""
        return [record for record, tensor in zip(records, pieces_of(records), strict=True)
                if self._fits(record, tensor)]

    def _fits(self, record: Record, tensor: torch.Tensor) -> bool:
        source = self._source(record.key)
        check_tensor(record.key, tensor)
        if source is None:
            self.outcome.missing.append(record.key)
            return False
        self._sources[record.key] = source
        shape, dtype = tuple(self._published.shape(source)), self._published.dtype(source)
        if shape == tuple(record.global_shape) and dtype == saved_dtype(tensor):
            return True
        self.outcome.refuse(record.key, f"it was saved as {dtype} {shape}, and is {saved_dtype(tensor)} "
                                        f"{tuple(record.global_shape)} here")
        return False

    def _take(self, records: list[Record]) -> None:
        self._fitting += records

    def _plan_model(self) -> None:
        self._take(self._fitting_of(self._parts.model))

    def _plan_optimizer(self, blob: Blob, state: OptimizerState) -> None:
        """The state of a parameter is loaded as a whole or not at all."""
        value = self._value(blob.name)
        by_parameter, left = state.records_by_parameter(), set()
        can_be_loaded = {record.key for record in self._fitting_of(list(chain.from_iterable(by_parameter.values())))}
        if value is None:
            self.outcome.missing.append(blob.name)
        for name, records in by_parameter.items():
            fitting = [record for record in records if record.key in can_be_loaded]
            if len(fitting) == len(records) and value is not None and state.has_places_for(name, value):
                self._take(records)
                continue
            left.add(name)
            for record in fitting:
                self.outcome.refuse(record.key, "the rest of this parameter's state does not fit" if value is not None
                                    else f"no {blob.name} of this name was saved")
        if value is not None:
            self._plan_settings(blob, state, value, left, any(by_parameter[name] for name in by_parameter.keys() - left)
                                or not any(by_parameter.values()))

    def _plan_settings(self, blob: Blob, state: OptimizerState, value: Any, left: set[str], some: bool) -> None:
        value, why = state.without(value, left)
        why = why if some else "none of its state fits"
        if why is not None:
            self.outcome.refuse(blob.name, why)
        if some:
            self._values.append((blob, value))

    # ---- values

    def _value(self, name: str) -> Any:
        """None if there is none."""
        keys = (rank_key(rank, f"tierckpt.{name}") for rank in (self._world.rank, 0))
        key = next((key for key in keys if key in self._blobs), None)
        data = b"" if key is None else self._published.blob(key)
        return jsonstate.loads(data) if data else None

    def _plan_value(self, blob: Blob, own: list[Record] | None) -> None:
        if blob.name == "rng" and not self._generators:
            return
        value = self._value(blob.name)
        if value is None or not self._is_of_this_rank(blob):
            self.outcome.missing.append(blob.name)
            if value is not None or blob.name.startswith("scheduler"):
                self._no_harm.add(blob.name)
            return
        fitting = self._fitting_of(own or [])
        if len(fitting) != len(own or []) or not _is_whole(value, fitting):
            self.outcome.refuse(blob.name, "its tensors are different here")
            return
        try:
            blob.fits(value)
        except errors.LayoutError as error:
            self.outcome.refuse(blob.name, str(error))
            return
        self._take(fitting)
        self._values.append((blob, value))

    def _is_of_this_rank(self, blob: Blob) -> bool:
        """With another number of ranks, values that belong to single ranks stay as they are."""
        return blob.reshard != "leave" or self._published.info.world_size == self._world.size

    # ---- what was saved and has no place

    def wanted(self) -> set[str]:
        """The plain names of what this rank reads. Another rank may have a part of a tensor that this one has no part
        of."""
        return {split_rank(source)[1] for source in self._sources.values()}

    def note_unexpected(self, wanted: set[str]) -> None:
        """`wanted` by any rank."""
        saved = {key.split("/", 1)[1].removeprefix("tierckpt.") for key in self._blobs if "/" in key}
        given = {blob.name for blob in self._parts.blobs} | set(self.outcome.mismatched)
        dropped = sorted(saved - given - {"rng"})
        states = not any(name.split(".")[0] == "optimizer" for name in dropped) and bool(self._given.optimizers)
        for key in self._published.keys:
            if key not in wanted and split_rank(key)[0] is None and (states or not key.startswith("optimizer.")):
                self.outcome.unexpected.append(key)
        self.outcome.unexpected += dropped
        self._no_harm |= {*dropped, *(key for key in self.outcome.unexpected if not self._is_of_a_model(key))}

    def _is_of_a_model(self, key: str) -> bool:
        """Whether the key belongs to a model that was given. The program may leave out others, such as averaged
        weights."""
        return any(name == "" or key.removeprefix("optimizer.").startswith(f"{name}.") for name in self._given.models)

    # ---- what becomes of it

    def complaint(self) -> str | None:
        """Why a strict load is refused, None if it is not."""
        outcome = self.outcome
        lists = (("{} does not fit", [f"{name}: {outcome.why[name]}" for name in outcome.mismatched]),
                 ("not saved: {}", [name for name in outcome.missing if name not in self._no_harm]),
                 ("saved, and nothing here has a place for it: {}",
                  [name for name in outcome.unexpected if name not in self._no_harm]))
        return "; ".join(text.format(few(names)) for text, names in lists if names) or None

    def read(self) -> None:
        """Reads into CPU memory first, so that nothing is changed if something cannot be read."""
        for record, tensor in zip(self._fitting, pieces_of(self._fitting), strict=True):
            staged = torch.empty(saved_shape(tensor), dtype=saved_dtype(tensor))
            if staged.numel() > 0:
                self._published.read_box(self._sources[record.key], record.offset, tuple(staged.shape), out=staged)
            self._staged.append(staged)

    def apply(self) -> None:
        for staged, tensor in zip(self._staged, pieces_of(self._fitting), strict=True):
            pour(staged, tensor.detach())
        for blob, value in self._values:
            blob.apply(value)
        self.outcome.loaded += [record.key for record in self._fitting]
        self.outcome.loaded += [blob.name for blob, _ in self._values if blob.name not in self.outcome.why]


def _is_whole(value: Any, records: list[Record]) -> bool:
    """Whether every tensor that is kept apart from a value is one of these."""
    paths: set[str] = set()
    join(value, lambda path: paths.add(path))
    return paths <= {record.key.split("/", 1)[-1] for record in records}
