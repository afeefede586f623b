# SPDX-License-Identifier: Apache-2.0
"""From the optimizer of a DeepSpeed engine to the records of weights, masters and moments: ZeRO 0 to 3."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from .. import errors
from . import groups
from .materialise import materialise
from .records import Record, fixed, whole
from .sharding import Placer
from .walk_optimizer import OptimizerState, state_key


def optimizer_of(engine: Any, names: dict[str, torch.nn.Parameter],
                 placer: Placer) -> "_Partitions | _Plain | _Fragments":
    """weights(), records(), check(), capture(), apply(), room() of this engine's optimizer. `names` are the model's
    parameters, the placer knows the data-parallel ranks."""
    optimizer = engine.optimizer
    if engine.zero_optimization_partition_weights():
        return _Partitions(optimizer, names, placer)
    if isinstance(optimizer, torch.optim.Optimizer):
        return _Plain(optimizer, names, names, placer)
    if hasattr(optimizer, "fp32_groups") and hasattr(optimizer, "fp16_groups"):
        return _Plain(optimizer.optimizer, names, _masters(optimizer, names), placer)
    masters = getattr(optimizer, "single_partition_of_fp32_groups", None) or \
        getattr(optimizer, "fp32_groups_flat_partition", None)
    if masters is None:
        raise errors.UnsupportedError(
            f"tierckpt.deepspeed does not know the optimizer wrapper {type(optimizer).__name__}: "
            "with ZeRO 0 and 16 bits use a torch optimizer, or turn ZeRO on")
    return _Fragments(optimizer, masters, names, placer)


def _whole_parameters(names: dict[str, torch.nn.Parameter], placer: Placer) -> list[Record]:
    records = (placer.record(name, fixed(parameter)) for name, parameter in names.items())
    return [record for record in records if record is not None]



def _masters(optimizer: Any, names: dict[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    """The 32-bit copies that FP16_UnfusedOptimizer keeps, by parameter."""
    name_of = {id(parameter): name for name, parameter in names.items()}
    return {name_of[id(low)]: high for lows, highs in zip(optimizer.fp16_groups, optimizer.fp32_groups, strict=True)
            for low, high in zip(lows, highs, strict=True)}


def _master_key(name: str) -> str:
    return f"master.{name}"


class _Plain(OptimizerState):
    """ZeRO 0: each rank has all of it. `trained` are the tensors that the torch optimizer steps."""

    def __init__(self, optimizer: Any, names: dict[str, torch.nn.Parameter], trained: Mapping[str, torch.Tensor],
                 placer: Placer) -> None:
        super().__init__(optimizer, dict(trained), placer)
        self._names, self._trained = names, trained

    def weights(self) -> list[Record]:
        return _whole_parameters(self._names, self._placer)

    def records(self) -> list[Record]:
        masters = {} if self._trained is self._names else self._trained
        records = (self._placer.record(_master_key(name), fixed(tensor)) for name, tensor in masters.items())
        return super().records() + [record for record in records if record is not None]


@dataclass(frozen=True)
class _Piece:
    """A part of one parameter, seen as a 1-D tensor, and its place in one of the optimizer's flat tensors."""

    name: str
    numel: int  # of the whole parameter
    offset: int  # of the piece in it
    flat: int  # the number of the flat tensor
    start: int  # of the piece in that
    length: int

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        return flat.detach().narrow(0, self.start, self.length)


class _Sliced:
    """ZeRO 1 to 3: the optimizer steps flat tensors, each with this rank's pieces of many parameters.

    Every piece is saved under the name of its parameter, so what is saved does not depend on the padding between them
    or on the number of ranks.
    """

    def __init__(self, base: torch.optim.Optimizer, flats: list[torch.Tensor], pieces: list[_Piece],
                 counts: list[groups.Group]) -> None:
        """`counts`: by flat tensor, the ranks that count its steps alike."""
        self._base, self._flats, self._pieces, self._counts = base, flats, pieces, counts
        self._registered = [self._keys(flat) for flat in flats]
        self._views: dict[tuple[_Piece, str | None], torch.Tensor] = {}
        self._seen: list[tuple[int, int]] | None = None

    def _keys(self, flat: torch.Tensor) -> set[str]:
        return {key for key, value in self._base.state.get(flat, {}).items() if torch.is_tensor(value)}

    # ---- tensors

    def _look(self) -> None:
        """Drops views of tensors that the optimizer has replaced."""
        states = [self._base.state.get(flat, {}) for flat in self._flats]
        tensors = [value for state in states for value in state.values() if torch.is_tensor(value)] + self._flats
        seen = [(tensor.data_ptr(), tensor.numel()) for tensor in tensors]
        if seen != self._seen:
            self._views, self._seen = {}, seen

    def _state(self, number: int, key: str) -> torch.Tensor:
        value: torch.Tensor | None = self._base.state.get(self._flats[number], {}).get(key)
        if value is None:
            raise errors.LayoutError(f"the optimizer has lost {key} of its flat tensor {number}: close this checkpoint "
                                     "and call attach again")
        return value

    def _view(self, piece: _Piece, key: str | None) -> torch.Tensor:
        view = self._views.get((piece, key))
        if view is None:
            view = piece.of(self._flats[piece.flat] if key is None else self._state(piece.flat, key))
            self._views[piece, key] = view
        return view

    def _sharded(self, key: str, piece: _Piece, state: str | None) -> Record:
        return Record(key, partial(self._view, piece, state), (piece.numel,), (piece.offset,), None, False, self._look)

    def records(self) -> list[Record]:
        records = [self._sharded(_master_key(piece.name), piece, None) for piece in self._pieces
                   if not self._is_weight(piece.flat)]
        for piece in self._pieces:
            records += [self._sharded(state_key(piece.name, key), piece, key)
                        for key in sorted(self._registered[piece.flat])
                        if self._state(piece.flat, key).numel() == self._flats[piece.flat].numel()]
        return records + [record for number in range(len(self._flats)) for record in self._counters(number)]

    def _is_weight(self, _flat: int) -> bool:
        """Whether the flat tensor is the weights themselves, so that there is nothing else to save."""
        return False

    def _counters(self, number: int) -> list[Record]:
        """State that does not have one value per element, such as the number of steps."""
        keys = [key for key in sorted(self._registered[number])
                if self._state(number, key).numel() != self._flats[number].numel()]
        return [whole(f"optimizer.flat{number}.{key}", partial(self._state, number, key), self._counts[number].name,
                      eager=True, look=self._look) for key in keys]

    def check(self) -> None:
        """Before a save. Raises if there is a state tensor that was not there at registration."""
        for number, flat in enumerate(self._flats):
            new = self._keys(flat) - self._registered[number]
            if new:
                raise errors.LayoutError(f"{', '.join(sorted(new))} of the optimizer came into being after attach: "
                                         "close this checkpoint and call attach again")

    # ---- the rest

    def capture(self) -> dict[str, Any]:
        return {
            "groups": [{key: value for key, value in group.items() if key != "params"}
                       for group in self._base.param_groups],
            "values": [{key: value for key, value in self._base.state.get(flat, {}).items()
                        if not torch.is_tensor(value)} for flat in self._flats],
        }

    def room(self) -> int:
        """Bytes that `capture` may come to need, from the structure alone."""
        return 64 * 1024 + 4096 * (len(self._base.param_groups) + len(self._flats))

    def fits(self, saved: dict[str, Any]) -> None:
        """Raises LayoutError unless `apply` can put this value back."""
        for what, here in (("groups", self._base.param_groups), ("values", self._flats)):
            if len(saved[what]) != len(here):
                raise errors.LayoutError(f"the optimizer has {len(here)} {what}, {len(saved[what])} were saved")

    def apply(self, saved: dict[str, Any]) -> None:
        self.fits(saved)
        for group, values in zip(self._base.param_groups, saved["groups"], strict=True):
            group.update(values)
        for flat, values in zip(self._flats, saved["values"], strict=True):
            if values:
                self._base.state[flat].update(values)


class _Fragments(_Sliced):
    """ZeRO 1 and 2: each rank has all weights, and a part of the masters and moments."""

    def __init__(self, optimizer: Any, masters: list[torch.Tensor], names: dict[str, torch.nn.Parameter],
                 placer: Placer) -> None:
        self._names, self._placer = names, placer
        _materialise(optimizer.optimizer, masters)
        counts = [groups.of_process_group(group) for group in optimizer.real_dp_process_group]
        super().__init__(optimizer.optimizer, list(masters), _fragments(names), counts)

    def weights(self) -> list[Record]:
        return _whole_parameters(self._names, self._placer)


def _fragments(names: dict[str, torch.nn.Parameter]) -> list[_Piece]:
    """The pieces that DeepSpeed has linked to parameters on this rank."""
    pieces = []
    for name, parameter in names.items():
        link = getattr(parameter, "_hp_mapping", None)
        if link is not None:
            low, high = link.lp_fragment_address, link.hp_fragment_address
            pieces.append(_Piece(name, parameter.numel(), low.start, link.param_group_index, high.start, low.numel))
    return pieces


class _Partitions(_Sliced):
    """ZeRO 3: each rank has a part of every parameter."""

    def __init__(self, optimizer: Any, names: dict[str, torch.nn.Parameter], placer: Placer) -> None:
        self._optimizer, self._placer = optimizer, placer
        self._names: Mapping[str, Any] = names  # with what ZeRO 3 adds to each parameter
        replicas = placer.plain or groups.of_ranks([placer.rank])
        flats = list(optimizer.fp32_partitioned_groups_flat)
        optimizer._set_fp32_optimizer_param_groups()
        try:
            _materialise(optimizer.optimizer, flats)
        finally:
            optimizer._clear_fp32_optimizer_param_groups()
        for name, parameter in names.items():
            _check_partitioned_over(replicas, name, parameter)
        super().__init__(optimizer.optimizer, flats, self._pieces_in_order(), [replicas] * len(flats))

    def _pieces_in_order(self) -> list[_Piece]:
        name_of = {id(parameter): name for name, parameter in self._names.items()}
        pieces = []
        for number, parameters in enumerate(self._optimizer.fp16_groups):
            start = 0
            for parameter in parameters:
                offset, length = _own_part(parameter)
                if length > 0:
                    name = name_of[id(parameter)]
                    pieces.append(_Piece(name, parameter.ds_numel, offset, number, start, length))
                start += parameter.ds_tensor.ds_numel
        return pieces

    def weights(self) -> list[Record]:
        records = []
        for name, parameter in self._names.items():
            offset, length = _own_part(parameter)
            if length > 0:
                find = partial(_own_weights, parameter, length)
                records.append(Record(name, find, (parameter.ds_numel,), (offset,), None, False))
        return records

    def _is_weight(self, flat: int) -> bool:
        low: torch.Tensor = self._optimizer.fp16_partitioned_groups_flat[flat]
        return low.data_ptr() == self._flats[flat].data_ptr()

    def capture(self) -> dict[str, Any]:
        shapes = {name: list(parameter.ds_shape) for name, parameter in self._names.items()}
        return {**super().capture(), "shapes": shapes}

    def room(self) -> int:
        return super().room() + sum(len(name) + 128 for name in self._names)


def _check_partitioned_over(replicas: groups.Group, name: str, parameter: Any) -> None:
    if not hasattr(parameter, "ds_tensor"):
        raise errors.UnsupportedError(f"{name} is not partitioned by ZeRO 3: it came after deepspeed.initialize")
    if groups.of_process_group(parameter.ds_process_group) != replicas:
        raise errors.UnsupportedError(f"{name} is partitioned over a part of the ranks (MiCS), which is not supported")


def _own_part(parameter: Any) -> tuple[int, int]:
    """Offset and length of what this rank holds, without padding."""
    size = parameter.ds_tensor.ds_numel
    offset = size * dist.get_rank(parameter.ds_process_group)
    return offset, max(0, min(size, parameter.ds_numel - offset))


def _own_weights(parameter: Any, length: int) -> torch.Tensor:
    held: torch.Tensor = parameter.ds_tensor
    return held.detach().narrow(0, 0, length)


def _materialise(base: torch.optim.Optimizer, flats: list[torch.Tensor]) -> None:
    """The state is empty until the first step, and records are registered before it."""
    if type(base).__module__.startswith("deepspeed.ops.adam.") and hasattr(base, "fp32_optimizer_states"):
        _fill_cpu_adam(base, flats)
    elif materialise(base):
        raise errors.UnsupportedError(
            f"{type(base).__name__} makes its state from the first gradient: call attach after "
            "the first engine.step()")


def _fill_cpu_adam(base: Any, flats: list[torch.Tensor]) -> None:
    """As DeepSpeedCPUAdam.step does when it meets the first gradient."""
    for flat in flats:
        dtype = torch.float32 if base.fp32_optimizer_states else flat.dtype
        if len(base.state[flat]) == 0:
            base.state[flat].update({"step": 0, "exp_avg": torch.zeros_like(flat, dtype=dtype).detach(),
                                     "exp_avg_sq": torch.zeros_like(flat, dtype=dtype).detach()})
