# SPDX-License-Identifier: Apache-2.0
"""From Megatron's model chunks, optimizer and scheduler to records and blobs. Imports megatron.core.

A parameter's key begins with the coordinates of its rank among those that hold other parts: pp, vpp (model chunk), tp,
or etp and ep for experts, each if there are several. Ranks that hold the same are those of Megatron's data-parallel
groups.

With the distributed optimizer a rank is the owner of a piece of each of some parameters. Only those pieces are saved,
flat, with their place in the whole parameter: what the optimizer itself keeps, and what does not change before its next
step even while the parameters are still being gathered. After a load the optimizer's own gather makes the parameters.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy
import torch
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel
from megatron.core.optimizer.distrib_optimizer import DistributedOptimizer
from megatron.core.optimizer.optimizer import Float16OptimizerWithFloat16Params, FP32Optimizer
from megatron.core.transformer.module import Float16Module

from ... import errors
from ...runtime.world import World
from ...state import groups, module_state, twins, walk_model
from ...state.blobs import Blob
from ...state.contents import Contents, Fence, before_optimizer_step
from ...state.model_tensors import ModelTensors
from ...state.records import Record, fixed
from ...state.rng import Rng
from ...state.sharding import Placer
from ...state.walk_optimizer import OptimizerState, state_key
from ..api_compat import usable
from ..trained import OptimizerStates
from . import export_map
from .description import Description
from .sharded_model import describe

# What is read of each kind of optimizer; none of it is a function whose parameters could be looked at.
_READ = {
    FP32Optimizer: ("optimizer",),
    Float16OptimizerWithFloat16Params: ("optimizer", "grad_scaler", "float16_groups", "fp32_from_float16_groups"),
    DistributedOptimizer: ("optimizer", "config", "grad_scaler", "ddp_config", "buffers",
                           "model_param_group_index_map"),
}


@dataclass(frozen=True)
class _Read:
    """The same as RequiredApi for the attributes of an object."""

    owner: object
    names: tuple[str, ...]

    def fault(self) -> str | None:
        missing = [name for name in self.names if not hasattr(self.owner, name)]
        return f"{type(self.owner).__name__} has no {', '.join(missing)}" if missing else None


def parts_of(optimizer: Any) -> list[Any]:
    """The optimizers that a chained one is made of, without those that have no parameters on this rank."""
    parts = getattr(optimizer, "chained_optimizers", [optimizer])
    return [part for part in parts if not getattr(part, "is_stub_optimizer", False)]


def known(optimizer: Any) -> bool:
    """Whether each part has the attributes that are read from it. If not, one warning says what is missing."""
    return usable("tierckpt.megatron", "megatron-core",
                  (_Read(part, _READ.get(type(part), ())) for part in parts_of(optimizer)))


# ---- where the parameters are


def _coordinate(name: str, rank: int, size: int) -> str:
    return f"{name}{rank}." if size > 1 else ""


def _bare(chunk: Any) -> torch.nn.Module:
    """The model chunk without Megatron's wrappers."""
    while type(chunk) in (DistributedDataParallel, Float16Module):
        chunk = chunk.module
    if not hasattr(chunk, "config"):
        raise errors.UnsupportedError(f"a model chunk is a {type(chunk).__name__}: only Megatron modules in Megatron's "
                                      "DistributedDataParallel and Float16Module can be saved")
    if getattr(chunk.config, "fp8", None) or getattr(chunk.config, "fp4", None):
        raise errors.UnsupportedError("parameters in FP8 or FP4 cannot be saved: train in BF16, FP16 or FP32")
    return chunk


class Model:
    """The model chunks of this rank, and the key and the twins of each parameter."""

    def __init__(self, chunks: list[Any], rank: int) -> None:
        stage = _coordinate("pp", parallel_state.get_pipeline_model_parallel_rank(),
                            parallel_state.get_pipeline_model_parallel_world_size())
        self._dense = _coordinate("tp", parallel_state.get_tensor_model_parallel_rank(),
                                  parallel_state.get_tensor_model_parallel_world_size())
        self._expert = "".join((
            _coordinate("etp", parallel_state.get_expert_tensor_parallel_rank(),
                        parallel_state.get_expert_tensor_parallel_world_size()),
            _coordinate("ep", parallel_state.get_expert_model_parallel_rank(),
                        parallel_state.get_expert_model_parallel_world_size())))
        self._at = {"pp": parallel_state.get_pipeline_model_parallel_rank(),
                    "tp": parallel_state.get_tensor_model_parallel_rank(),
                    "etp": parallel_state.get_expert_tensor_parallel_rank(),
                    "ep": parallel_state.get_expert_model_parallel_rank()}
        self.wrapped = chunks
        self.place = f"{stage}{self._dense}{self._expert}chunks{len(chunks)}"
        """Of this rank among those that hold other parts of the model: the same for ranks that hold the same."""
        self.chunks = {stage + _coordinate("vpp", number, len(chunks)): _bare(chunk)
                       for number, chunk in enumerate(chunks)}
        self._placers = {
            True: Placer(rank, groups.of_process_group(parallel_state.get_data_parallel_group(
                with_context_parallel=True))),
            False: Placer(rank, groups.of_process_group(parallel_state.get_expert_data_parallel_group())),
        }
        self.parameters = {}
        for prefix, chunk in self.chunks.items():
            for name, parameter in walk_model.named_parameters(chunk).items():
                self.parameters[prefix + self._own(parameter) + name] = parameter
        self._keys = {id(parameter): key for key, parameter in self.parameters.items()}

    def _own(self, parameter: Any) -> str:
        return self._dense if _is_dense(parameter) else self._expert

    def key(self, parameter: Any) -> str:
        return self._keys[id(parameter)]

    def buffer_key(self, prefix: str, name: str) -> str:
        """Of a buffer of the chunk with this prefix."""
        return prefix + self._dense + name

    def placer(self, parameter: Any) -> Placer:
        return self._placers[_is_dense(parameter)]

    def parameter_records(self, besides: set[str]) -> list[Record]:
        records = (self.placer(parameter).record(key, fixed(parameter))
                   for key, parameter in self.parameters.items() if key not in besides)
        return [record for record in records if record is not None]

    def buffer_records(self) -> list[Record]:
        placer = self._placers[True]
        records = []
        for prefix, chunk in self.chunks.items():
            records += walk_model.buffer_records(walk_model.unwrap(chunk), placer, prefix + self._dense)
        return records

    def description(self) -> Description:
        """Which parts of the whole model this rank has."""
        tensors: dict[str, torch.Tensor] = dict(self.parameters)
        for prefix, chunk in self.chunks.items():
            buffers = ModelTensors(chunk).buffers()
            tensors.update({prefix + self._dense + name: buffer for name, buffer in buffers.items()})
        return describe(self.chunks, tensors, self._at)

    def meaning(self) -> dict[str, Any]:
        """Settings that change the meaning of the parameters while their shapes stay the same."""
        config = next(iter(self.chunks.values())).config
        names = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups",
                 "kv_channels", "gated_linear_unit", "normalization", "num_moe_experts", "moe_router_topk")
        return {name: getattr(config, name, None) for name in names}


def _is_dense(parameter: Any) -> bool:
    """Megatron marks the parameters of experts, which have data-parallel groups of their own."""
    return getattr(parameter, "allreduce", True)


# ---- optimizers


class _Piece(Placer):
    """Places the state of a piece of a parameter, which begins at element `start` of its `numel`."""

    def __init__(self, rank: int, twins_of_piece: groups.Group, numel: int, start: int) -> None:
        super().__init__(rank, twins_of_piece)
        self._twins = twins_of_piece
        self._numel = numel
        self._start = start

    def record(self, key: str, find: Callable[[], torch.Tensor], eager: bool = False,
               look: Callable[[], None] | None = None) -> Record:
        if find().dim() == 0:
            return self.private(key, find, look)  # the step, of each owner of a piece
        return Record(key, find, (self._numel,), (self._start,), self._twins.name, eager, look)


class _ByParameter(Placer):
    """Places the state of each parameter by the placer of its key."""

    def __init__(self, rank: int, placers: dict[str, Placer]) -> None:
        super().__init__(rank, None)
        self._placers = placers

    def of(self, name: str) -> Placer:
        return self._placers[name]


@dataclass
class _Trained:
    """What an inner torch optimizer trains, by key of the model's parameter."""

    placers: dict[str, Placer] = field(default_factory=dict)
    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    masters: set[str] = field(default_factory=set)  # keys of those that are not the model's parameter itself

    def add(self, key: str, tensor: torch.Tensor, placer: Placer, master: bool) -> None:
        self.tensors[key], self.placers[key] = tensor, placer
        if master:
            self.masters.add(key)

    def records(self) -> list[Record]:
        records = (self.placers[key].record(state_key(key, "fp32_param"), partial(self.tensors.__getitem__, key))
                   for key in sorted(self.masters))
        return [record for record in records if record is not None]


def _plain(part: Any, model: Model) -> _Trained:
    """Whole parameters, or whole FP32 masters of 16-bit parameters."""
    trained = _Trained()
    own = {id(tensor) for group in part.optimizer.param_groups for tensor in group["params"]}
    for key, parameter in model.parameters.items():
        if id(parameter) in own:
            trained.add(key, parameter, model.placer(parameter), master=False)
    pairs = zip(getattr(part, "float16_groups", ()), getattr(part, "fp32_from_float16_groups", ()), strict=True)
    for parameters, masters in pairs:
        for parameter, master in zip(parameters, masters, strict=True):
            trained.add(model.key(parameter), master, model.placer(parameter), master=True)
    return trained


def _twins_of_pieces(rank: int) -> groups.Group:
    """Several instances of the distributed optimizer hold the same pieces."""
    between = parallel_state.get_inter_distributed_optimizer_instance_group(check_initialized=False)
    return groups.of_ranks([rank]) if between is None else groups.of_process_group(between)


def _pieces(part: DistributedOptimizer, model: Model, rank: int) -> _Trained:
    trained, same = _Trained(), _twins_of_pieces(rank)
    for parameter, (group, order) in part.model_param_group_index_map.items():
        place = part._get_model_param_range_map(parameter)["param"]
        piece = part.optimizer.param_groups[group]["params"][order]
        trained.add(model.key(parameter), piece, _Piece(rank, same, parameter.numel(), place.start), master=True)
    return trained


def _check_distributed(part: DistributedOptimizer, model: Model) -> None:
    if part.ddp_config.use_megatron_fsdp or getattr(part.config, "use_precision_aware_optimizer", False):
        raise errors.UnsupportedError("Megatron FSDP and the precision-aware optimizer cannot be saved: use the plain "
                                      "distributed optimizer")
    if any(getattr(chunk.config, "qk_clip", False) for chunk in model.chunks.values()):
        raise errors.UnsupportedError(
            "qk_clip changes parameters without the distributed optimizer's knowledge, and they would not "
            "come back as they were: switch one of the two off")


class Part:
    """One of Megatron's optimizers: the torch optimizer inside it, what that trains, and its loss scale."""

    def __init__(self, part: Any, number: int, model: Model, rank: int) -> None:
        if type(part) not in _READ or not isinstance(part.optimizer, torch.optim.Optimizer):
            raise errors.UnsupportedError(
                f"{type(part).__name__} with {type(part.optimizer).__name__} cannot be saved; "
                f"known are {', '.join(kind.__name__ for kind in _READ)}, with an optimizer of "
                "torch")
        self.megatron = part
        self.distributed = isinstance(part, DistributedOptimizer)
        self._number = number
        self._scaler: Any = getattr(part, "grad_scaler", None)
        if self.distributed:
            _check_distributed(part, model)
        self._trained = _pieces(part, model, rank) if self.distributed else _plain(part, model)
        # Megatron sets the gradients of masters itself, so they need not say that they require one.
        self.state = OptimizerState(part.optimizer, self._trained.tensors, _ByParameter(rank, self._trained.placers),
                                    every=True)

    def in_pieces(self, model: Model) -> set[str]:
        """The keys of the parameters that are saved as pieces by their owners, on this rank or another."""
        if not self.distributed:
            return set()
        return {model.key(parameter) for buffer in self.megatron.buffers for parameter in buffer.param_index_map}

    def records(self) -> list[Record]:
        return self._trained.records() + self.state.records()

    def blobs(self) -> list[Blob]:
        made = [Blob(f"optimizer{self._number}", self.state.capture, self.state.apply, self.state.room(),
                     fits=self.state.fits_groups)]
        if self._scaler is not None:
            made.append(Blob(f"scaler{self._number}", self._take_scale, self._put_scale))
        return made

    def _take_scale(self) -> dict[str, Any]:
        return {key: value.tolist() if torch.is_tensor(value) else value
                for key, value in self._scaler.state_dict().items()}

    def _put_scale(self, saved: dict[str, Any]) -> None:
        if "scale" in saved:
            saved["scale"] = torch.tensor(saved["scale"], dtype=torch.float)
        self._scaler.load_state_dict(saved)


# ---- the rest


def _scheduler_blob(scheduler: Any) -> Blob:
    def put(saved: Any) -> None:
        scheduler.num_steps = 0  # load_state_dict adds what was saved
        scheduler.load_state_dict(saved)

    return Blob("scheduler", scheduler.state_dict, put)


def _tracker_blob() -> Blob:
    """The generators that Megatron keeps beside torch's own, one for each kind of parallelism."""
    tracker = tensor_parallel.get_cuda_rng_tracker()

    def take() -> dict[str, bytes]:
        states = {name: tensor_parallel.convert_cuda_rng_state(state, to_graphable=False)
                  for name, state in tracker.get_states().items()}
        return {name: state.cpu().numpy().tobytes() for name, state in states.items()}

    def put(saved: Any) -> None:
        graphable = tensor_parallel.is_graph_safe_cuda_rng_tracker(tracker)
        states = {name: torch.from_numpy(numpy.frombuffer(data, numpy.uint8).copy()) for name, data in saved.items()}
        tracker.set_states({name: tensor_parallel.convert_cuda_rng_state(state, to_graphable=graphable)
                            for name, state in states.items()})

    return Blob("rng_tracker", take, put)


@dataclass(frozen=True)
class Mapping:
    """What attach and a load need."""

    contents: Contents
    fences: list[Fence]
    settle: Callable[[], None]  # before a load
    generators: list[Blob]


def _gather(model: Model, parts: list[Part]) -> None:
    """Computes the parameters from the pieces of their owners, as the end of a step of the distributed optimizer
    does."""
    with torch.no_grad():
        for part in parts:
            part.megatron._copy_main_params_to_model_params()
        for chunk in model.wrapped if parts else ():
            chunk.start_param_sync(force_sync=True)


def _settle(model: Model, parts: list[Part]) -> None:
    """Waits for gathers that overlap with the forward pass: they would write older parameters after the load."""
    if any(part.megatron.ddp_config.overlap_param_gather for part in parts):
        for chunk in model.wrapped:
            chunk.start_param_sync(force_sync=True)


def mapping_of(model: Model, optimizer: Any, scheduler: Any, more: list[Blob], world: World) -> Mapping:
    """`more` are the caller's own blobs. Collective."""
    parts = [Part(part, number, model, world.rank) for number, part in enumerate(parts_of(optimizer))]
    distributed = [part for part in parts if part.distributed]
    rng, private = Rng(elastic=True), Placer(world.rank, groups.of_ranks([world.rank]))
    in_pieces = set().union(*(part.in_pieces(model) for part in parts))
    records = model.parameter_records(besides=in_pieces) + model.buffer_records()
    records += [record for part in parts for record in part.records()] + [rng.record(private)]
    blobs = module_state.blobs_of(model.chunks.items()) + [blob for part in parts for blob in part.blobs()]
    blobs += [_scheduler_blob(scheduler)] if scheduler is not None else []
    generators = [_tracker_blob(), rng.blob(None)]
    blobs += [*more, export_map.blob(model, in_pieces, world), *generators]
    twins.confirm(records, world)
    contents = Contents(records, blobs, check=OptimizerStates([part.state for part in parts]).check,
                        loaded=lambda: _gather(model, distributed))
    fences = [before_optimizer_step(part.megatron.optimizer) for part in parts]
    return Mapping(contents, fences, lambda: _settle(model, distributed), generators)
