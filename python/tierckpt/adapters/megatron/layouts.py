# SPDX-License-Identifier: Apache-2.0
"""A published version of other parallel sizes: every tensor is put together from the parts that were saved.

What is a part of which global tensor, the ranks that saved it have described, and this rank describes its own in the
same way. So the numbers of ranks in each kind of parallelism may differ, the layers may be dealt out to other stages,
and the distributed optimizer may be switched on or off. Each rank reads what it needs. What is not a tensor is the same
on all ranks, or has a name that holds for every layout, or belongs to a place (generators.py).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ... import errors
from ...core.published import Published
from ...runtime.world import World
from ...state import jsonstate
from ...state.blobs import Blob
from ...state.contents import Contents
from ...state.records import pieces_of
from ...state.sharding import rank_key, split_rank
from .description import Here, Saved
from .generators import Choice, along, choose, derived
from .saved_tensors import SavedTensors

log = logging.getLogger("tierckpt")

GENERATOR, GENERATORS, TRACKER, MODULES = "rng.torch", "rng", "rng_tracker", "model"
_OPTIMIZER, _OF_EXPERTS = "optimizer", "is_expert_parallel"


def put(version: Published, contents: Contents, saved: Saved, here: Here, world: World) -> None:
    """Loads the version. Collective. Raises LayoutError on every rank, with nothing changed, if something is missing.
    """
    modules = _module_states(version, contents, saved, world)
    plan = world.agreed(lambda: _Plan(version, contents, saved, here, modules))
    used = {name for names in world.gather(plan.needs) for name in names}
    world.agreed(lambda: _check_all_used(saved, used, version))
    _tell(plan, world, version.step)
    for read in plan.reads:
        read()
    for blob, value in plan.values():
        blob.apply(value)
    contents.loaded()


def _tell(plan: "_Plan", world: World, step: int) -> None:
    """Says once, on rank 0, what is not as it was. Collective."""
    told = world.gather((plan.derives, sorted(plan.resized)))
    if world.rank != 0:
        return
    ranks = [rank for rank, (derives, _) in enumerate(told) if derives]
    if ranks:
        log.warning("the generators of ranks %s are derived from those of others, as none of those that saved step %d "
                    "had their place in the model", ranks, step)
    resized = sorted({text for _, of_rank in told for text in of_rank})
    if resized:
        log.warning("the vocabulary is padded to another size than in step %d: rows that were not saved are zero, and "
                    "rows beyond the new size are left out: %s", step, ", ".join(resized))


def _check_all_used(saved: Saved, used: set[str], version: Published) -> None:
    known = {part.key for one in saved.descriptions.values() for local in one.tensors.values() for part in local.parts}
    left = sorted(known - used)
    if left:
        raise errors.LayoutError(f"{left[0]} is in {version.info.path}, and no rank has a place for it: it was saved "
                                 "by another model")


class _Plan:
    """What this rank will read and put back."""

    def __init__(self, version: Published, contents: Contents, saved: Saved, here: Here,
                 modules: dict[str, dict[str, Any]]) -> None:
        self._version, self._saved, self._here = version, saved, here
        self._seats = saved.seats()
        self._blobs = {entry.key for entry in version.entries if entry.blob}
        self.derives = False
        self.needs = {part.key for local in here.description.tensors.values() for part in local.parts}
        tensors = SavedTensors(version, saved, here)
        drawer = self._choose(along(GENERATOR))
        self.reads: list[Callable[[], object]] = []
        for record, tensor in zip(contents.records, pieces_of(contents.records), strict=True):
            _, key = split_rank(record.key)
            read = self._generator(tensor, drawer) if key == GENERATOR else tensors.reader(record, key, tensor)
            self.reads.append(read)
        self._values = [(blob, self._value(blob, modules)) for blob in contents.blobs if not blob.declaration]
        self._derivation = drawer.seed
        self.resized = tensors.resized

    def values(self) -> Iterable[tuple[Blob, Any]]:
        """To be asked for when the tensors are in place."""
        for blob, value in self._values:
            if blob.derivation is not None and self._derivation is not None:
                value = blob.derivation.make(value, self._derivation, ())
            yield blob, value

    def _choose(self, kinds: tuple[str, ...]) -> Choice:
        choice = choose(self._seats, self._here.seat(), kinds, self._here.replicas_draw_alike)
        self.derives = self.derives or choice.seed is not None
        return choice

    def _generator(self, tensor: torch.Tensor, drawer: Choice) -> Callable[[], object]:
        key = rank_key(drawer.rank, GENERATOR)
        index = next(index for index, entry in enumerate(self._version.entries) if entry.key == key)
        return lambda: self._version.read_entry(index, out=tensor.detach())

    # ---- values

    def _value(self, blob: Blob, modules: dict[str, dict[str, Any]]) -> Any:
        if blob.name == TRACKER:
            return self._tracker(blob)
        if blob.name == GENERATORS:
            value = self._of_rank(self._choose(along(GENERATOR)).rank, blob)
        elif blob.name == MODULES:
            value = _of_modules(blob, self._saved, self._here, modules)
        else:
            value = self._of_any(blob)
        blob.fits(value)
        return value

    def _of_rank(self, rank: int, blob: Blob) -> Any:
        return jsonstate.loads(self._version.blob(rank_key(rank, f"tierckpt.{blob.name}"), rank))

    def _of_any(self, blob: Blob) -> Any:
        """The same on all ranks. This rank's own place comes first. Megatron has an optimizer of their own for experts,
        with a loss scale, but only if there are several ranks in expert parallelism: the first one has both then."""
        names = dict.fromkeys((blob.name, blob.name.rstrip("0123456789") + "0", blob.name.rstrip("0123456789")))
        ranks = sorted(self._saved.places, key=lambda rank: (self._saved.places[rank] != self._here.place, rank))
        found = (self._found(rank, name) for name in names for rank in ranks)
        if blob.name.startswith(_OPTIMIZER):
            trained = (one for one in found if one is not None and any(one["params"]))
            value = next(trained, None)
        else:
            value = next((one for one in found if one is not None), None)
        if value is None:
            raise errors.LayoutError(f"{self._version.info.path} has no {blob.name}: it was saved by another model or "
                                     "optimizer")
        return _of_optimizer(blob, value) if blob.name.startswith(_OPTIMIZER) else value

    def _found(self, rank: int, name: str) -> Any:
        key = rank_key(rank, f"tierckpt.{name}")
        return jsonstate.loads(self._version.blob(key, rank)) if key in self._blobs else None

    def _tracker(self, blob: Blob) -> dict[str, bytes]:
        """Each of Megatron's generators from a rank that had the same place as far as it concerns that generator."""
        value: dict[str, Any] = dict(blob.capture())  # type: ignore[call-overload]
        for name in value:
            choice = self._choose(along(name))
            states = self._of_rank(choice.rank, blob)
            if name in states:
                value[name] = states[name] if choice.seed is None else derived(states[name], choice.seed)
        return value


def _of_optimizer(blob: Blob, saved: dict[str, Any]) -> dict[str, Any]:
    """The settings of the groups of parameters, and for this rank's parameters what all of the other rank's had."""
    own: dict[str, Any] = dict(blob.capture())  # type: ignore[call-overload]
    names = [name for group in own["params"] for name in group]
    before = [name for group in saved["params"] for name in group]
    absent: dict[str, list[str]] = {}
    for name, path in saved["absent"]:
        absent.setdefault(name, []).append(path)
    missing = _alike(f"the parameters of {blob.name} that have a state", [absent.get(name, []) for name in before])
    values = _alike(f"the state of the parameters of {blob.name}", [saved["values"].get(name, {}) for name in before])
    return {**saved, "params": own["params"], "absent": [[name, path] for name in names for path in missing or ()],
            "values": {name: values for name in names} if values else {},
            "outer": _groups(blob, saved["outer"], own["outer"]), "inner": _groups(blob, saved["inner"], own["inner"])}


def _groups(blob: Blob, saved: list[dict[str, Any]], own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each group the settings of the saved one with the same purpose."""
    def purpose(group: dict[str, Any]) -> list[Any]:
        return [group.get(key) for key in ("wd_mult", "lr_mult", "is_decoupled_lr", "default_config")]

    chosen = []
    for number, group in enumerate(own):
        alike = [one for one in saved if purpose(one) == purpose(group)]
        exact = [one for one in alike if one.get(_OF_EXPERTS) == group.get(_OF_EXPERTS)] or alike
        if not exact:
            raise errors.LayoutError(f"group {number} of {blob.name} has settings that no group had when it was saved: "
                                     "it was saved by another optimizer")
        same = saved[number] if number < len(saved) and saved[number] in exact else exact[0]
        chosen.append({**same, **{key: group[key] for key in (_OF_EXPERTS,) if key in group}})
    return chosen


def _alike(what: str, values: Sequence[Any]) -> Any:
    if any(value != values[0] for value in values):
        raise errors.LayoutError(f"{what} differ, which other parallel sizes than those of the save cannot have")
    return values[0] if values else None


# ---- the state of modules other than tensors


def _module_states(version: Published, contents: Contents, saved: Saved, world: World) -> dict[str, dict[str, Any]]:
    """What modules have saved beside tensors, by place. Each rank reads a part. Collective."""
    if not any(world.gather(any(blob.name == MODULES for blob in contents.blobs))):
        return {}
    present = {entry.key for entry in version.entries if entry.blob}

    def read() -> dict[str, dict[str, Any]]:
        found = {}
        for place in list(saved.descriptions)[world.rank::world.size]:
            rank = saved.first_of(place)
            key = rank_key(rank, f"tierckpt.{MODULES}")
            found[place] = jsonstate.loads(version.blob(key, rank)) if key in present else {}
        return found

    by_place = {place: states for part in world.gather(world.agreed(read)) for place, states in part.items()}
    return {place: by_place[place] for place in saved.descriptions}


def _of_modules(blob: Blob, saved: Saved, here: Here, modules: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """By the names that Megatron gives them in every layout. A module without one has the value that it has wherever
    there is a module of its name, or on ranks of this place if they have the same parts of the model."""
    named: dict[str, Any] = {}
    bare: dict[str, list[Any]] = {}
    for place, states in modules.items():
        objects = saved.descriptions[place].objects
        for name, state in states.items():
            named.setdefault(objects.get(name, ""), state)
            bare.setdefault(_without_chunk(name), []).append(state)
    same = modules.get(here.place, {}) if saved.has_same(here) else {}
    value = {}
    for name in blob.capture():  # type: ignore[attr-defined]
        general = here.description.objects.get(name)
        others = bare.get(_without_chunk(name), [])
        if name in same:
            value[name] = same[name]
        elif general is not None and general in named:
            value[name] = named[general]
        elif general is None and others and len({jsonstate.dumps(name, one) for one in others}) == 1:
            value[name] = others[0]
        else:
            raise errors.LayoutError(f"the extra state of module {name!r} was not saved for other parallel sizes: its "
                                     "sharded_state_dict() must have it")
    return value


def _without_chunk(name: str) -> str:
    """The name of a module without the numbers of stage and chunk."""
    words = name.split(".")
    while words and words[0][:2] in ("pp", "vp") and words[0].lstrip("vp").isdigit():
        words = words[1:]
    return ".".join(words)
