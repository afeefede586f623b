# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM and megatron-core 0.16: checkpoints of a training job in the memory of its nodes.

In a program of Megatron-LM one line before pretrain() is enough: `import tierckpt.megatron.hook`. By hand:

    from tierckpt.megatron import initialize_easyckpt, load_checkpoint, save_checkpoint_if_needed

    initialize_easyckpt(save_mem_interval=1, save_storage_interval=100, max_ckpt_num=3, save_dir="/shared/ckpt")
    iteration, flops = load_checkpoint(model, optimizer, opt_param_scheduler)
    while iteration < iterations:
        ...train_step...
        iteration += 1
        save_checkpoint_if_needed(iteration, model, optimizer, opt_param_scheduler)
    finalize_easyckpt()

The first call of load_checkpoint or save_checkpoint_if_needed attaches and registers what is to be saved. It is
collective, as all of these are: every rank calls them. docs/frameworks/megatron.md says what is saved.
"""

import hashlib
import logging
import os
import sys
from pathlib import Path
from typing import Any

from ... import errors
from ...core.checkpoint import Checkpoint, attach
from ...core.published import open_published
from ...core.saving import NOT_DUE, SaveResult
from ...runtime.settings import ConfigSource, save_dir_at
from ...runtime.world import World, join_world
from ...state.blobs import Blob
from ..api_compat import RequiredApi, usable

log = logging.getLogger("tierckpt")

_CORE = "megatron.core"
_OPTIMIZER = f"{_CORE}.optimizer"
REQUIRED_API = (
    RequiredApi(f"{_CORE}.parallel_state:get_data_parallel_group", ("with_context_parallel",)),
    RequiredApi(f"{_CORE}.parallel_state:get_expert_data_parallel_group", ()),
    RequiredApi(f"{_CORE}.parallel_state:get_expert_tensor_parallel_rank", ()),
    RequiredApi(f"{_CORE}.parallel_state:get_inter_distributed_optimizer_instance_group", ("check_initialized",)),
    RequiredApi(f"{_CORE}.distributed:DistributedDataParallel.start_param_sync", ("self", "force_sync")),
    RequiredApi(f"{_CORE}.transformer.module:Float16Module"),
    RequiredApi(f"{_OPTIMIZER}.optimizer:FP32Optimizer.step", ("self",)),
    RequiredApi(f"{_OPTIMIZER}.optimizer:Float16OptimizerWithFloat16Params.step", ("self",)),
    RequiredApi(f"{_OPTIMIZER}.distrib_optimizer:DistributedOptimizer._get_model_param_range_map", ("self", "param")),
    RequiredApi(f"{_OPTIMIZER}.distrib_optimizer:DistributedOptimizer._copy_main_params_to_model_params", ("self",)),
    RequiredApi(f"{_CORE}.optimizer_param_scheduler:OptimizerParamScheduler.load_state_dict", ("self", "state_dict")),
    RequiredApi(f"{_CORE}.tensor_parallel:get_cuda_rng_tracker", ()),
    RequiredApi(f"{_CORE}.tensor_parallel:convert_cuda_rng_state", ("state", "to_graphable")),
    RequiredApi(f"{_CORE}.tensor_parallel:is_graph_safe_cuda_rng_tracker"),
    RequiredApi(f"{_CORE}.num_microbatches_calculator:update_num_microbatches", ("consumed_samples",)),
)


# ---- Megatron-LM's arguments, if its training package is in use

_COUNTERS = ("consumed_train_samples", "skipped_train_samples", "consumed_valid_samples")


def _arguments() -> Any:
    """Those of Megatron-LM; None in a program that uses megatron-core alone."""
    variables = sys.modules.get("megatron.training.global_vars")
    return None if variables is None else variables._GLOBAL_ARGS


class _Progress:
    """How far training has come, and what its parameters mean: a blob."""

    def __init__(self, meaning: dict[str, Any], place: str) -> None:
        self.flops = 0
        self.place = place
        self._iteration = 0
        self._meaning = meaning

    def at(self, iteration: int, flops: Any) -> None:
        self._iteration = iteration
        self.flops = self.flops if flops is None else flops

    def blob(self) -> Blob:
        return Blob("progress", self._take, self._put)

    def _take(self) -> dict[str, Any]:
        args = _arguments()
        counters = {} if args is None else {name: getattr(args, name, 0) for name in _COUNTERS}
        return {"iteration": self._iteration, "flops": self.flops, "counters": counters, "meaning": self._meaning,
                "place": self.place}

    def _put(self, saved: dict[str, Any]) -> None:
        for name, value in self._meaning.items():
            if saved["meaning"].get(name) != value:
                raise errors.LayoutError(f"the model has {name}={value}, what was loaded into it had "
                                         f"{saved['meaning'].get(name)}: do not train on; start with the arguments of "
                                         "then, or with another save_dir")
        self._iteration, self.flops = saved["iteration"], saved["flops"]
        args = _arguments()
        if args is not None and saved["counters"]:
            from megatron.core.num_microbatches_calculator import update_num_microbatches

            for name, value in saved["counters"].items():
                setattr(args, name, value)
            update_num_microbatches(consumed_samples=args.consumed_train_samples)


# ---- the job


class _Attached:
    """One model with its optimizer and scheduler, registered."""

    def __init__(self, settings: dict[str, Any], model: list[Any], optimizer: Any, scheduler: Any) -> None:
        from . import contents

        self.of = _identity(model, optimizer, scheduler)
        self.world = join_world()
        mapped = contents.Model(model, self.world.rank)
        self.progress = _Progress(mapped.meaning(), mapped.place)
        mapping = contents.mapping_of(mapped, optimizer, scheduler, [self.progress.blob()], self.world)
        self._mapping = mapping
        self._settings = settings
        self._scheduler = scheduler
        self._drawn: list[object] | None = None
        self.checkpoint = attach(mapping.contents, world=self.world, fences=mapping.fences, **settings)
        self._asked: int | None = None

    def save_if_needed(self, iteration: int, flops: Any) -> SaveResult:
        if iteration == self._asked:  # by hand and by the hook
            return NOT_DUE
        self._asked = iteration
        self.progress.at(iteration, flops)
        return self.checkpoint.save_checkpoint_if_needed(iteration)

    def save(self, iteration: int, flops: Any, to_storage: bool) -> None:
        self._asked = iteration
        self.progress.at(iteration, flops)
        self.checkpoint.save_checkpoint(iteration, to_storage)

    def load(self) -> int | None:
        self._mapping.settle()
        self._asked = None
        step = self.checkpoint.load_checkpoint()
        self._drawn = None if step is None else [blob.capture() for blob in self._mapping.generators]
        return step

    def load_published(self, stock_newest: int) -> int | None:
        """What another number of data-parallel ranks has published. None if Megatron's own checkpoint is later, or
        there is nothing."""
        from . import concat

        try:
            version = open_published(self._settings["config"], overrides=self._settings["overrides"])
        except errors.NotFoundError:
            return None
        with version:
            if version.step < stock_newest:
                return None
            concat.put(version, self._mapping.contents, self.progress.place)
            return version.step

    def forget(self) -> None:
        """What was loaded is replaced by something else. Megatron's own load counts on a scheduler that is new."""
        self._drawn = None
        if self._scheduler is not None:
            self._scheduler.num_steps = 0

    def rewind(self) -> None:
        """Once more the generators as they were loaded: what was made since then may have drawn from them."""
        if self._drawn is not None:
            for blob, state in zip(self._mapping.generators, self._drawn, strict=True):
                blob.apply(state)


def _chunks(model: Any) -> list[Any]:
    return list(model) if isinstance(model, (list, tuple)) else [model]


def _identity(model: list[Any], optimizer: Any, scheduler: Any) -> tuple[Any, ...]:
    return (*map(id, model), id(optimizer), id(scheduler))


class _Job:
    """What initialize_easyckpt was told, and what is attached."""

    def __init__(self, config: ConfigSource, overrides: dict[str, Any]) -> None:
        self.config = config
        self.overrides = overrides
        self.attached: _Attached | None = None

    def settings(self) -> dict[str, Any]:
        """For attach. Without any configuration versions go below Megatron-LM's --save, one job for each of these."""
        args = _arguments()
        save = getattr(args, "save", None)
        if self.config is not None or "save_dir" in self.overrides or not save:
            return {"config": self.config, "overrides": self.overrides}
        save = os.path.abspath(save)
        name = "megatron-" + hashlib.blake2b(save.encode(), digest_size=6).hexdigest()
        return {"config": None,
                "overrides": {"save_dir": save_dir_at(args.save, "tierckpt"), "job": name, **self.overrides}}

    def attach(self, model: Any, optimizer: Any, scheduler: Any) -> _Attached | None:
        """None if the adapter is off."""
        chunks = _chunks(model)
        if self.attached is None:
            if not usable("tierckpt.megatron", "megatron-core", REQUIRED_API):
                return None
            from . import contents

            if not contents.known(optimizer):
                return None
            self.attached = _Attached(self.settings(), chunks, optimizer, scheduler)
        elif self.attached.of != _identity(chunks, optimizer, scheduler):
            raise errors.InvalidArgumentError("this is another model, optimizer or scheduler than the one that was "
                                              "registered by the first load or save: call finalize_easyckpt before")
        return self.attached


_job: _Job | None = None


def is_initialized() -> bool:
    """Whether initialize_easyckpt was called, and finalize_easyckpt was not called since."""
    return _job is not None


def _current_job() -> _Job:
    if _job is None:
        raise errors.InvalidArgumentError("call initialize_easyckpt before the first load or save")
    return _job


def initialize_easyckpt(save_mem_interval: int | str | None = None, save_storage_interval: int | str | None = None,
                        max_ckpt_num: int | None = None, log_file_path: str | None = None, *,
                        config: ConfigSource = None, **keys: Any) -> None:
    """Before the first load or save, and once. Attaches nothing yet.

    save_mem_interval      save to memory every so many iterations, or so often ("30s"); 0 or less: never
    save_storage_interval  the same for storage
    max_ckpt_num           versions kept on storage
    log_file_path          log of the agent
    config                 path of a JSON file, or a dict, with further keys of the configuration; those given here win
    keys                   further keys. Without save_dir, versions go to <--save of Megatron-LM>/tierckpt
    """
    global _job
    if _job is not None and _job.attached is not None:
        raise errors.InvalidArgumentError("initialize_easyckpt was called before, and its checkpoints are in use: call "
                                          "finalize_easyckpt first")
    named = {"save_mem_interval": _interval(save_mem_interval),
             "save_storage_interval": _interval(save_storage_interval), "max_ckpt_num": max_ckpt_num,
             "log_file_path": log_file_path}
    _job = _Job(config, {**keys, **{key: value for key, value in named.items() if value is not None}})


def _interval(value: int | str | None) -> int | str | None:
    return 0 if isinstance(value, int) and value < 0 else value


def save_checkpoint_if_needed(iteration: int, model: Any, optimizer: Any, opt_param_scheduler: Any,
                              num_floating_point_operations_so_far: float | None = None) -> SaveResult:
    """Once per iteration, after the optimizer's and the scheduler's step, with the number of iterations done. True if a
    save was started. It is copied while training goes on; the next step of the optimizer waits for what is left."""
    attached = _current_job().attach(model, optimizer, opt_param_scheduler)
    return NOT_DUE if attached is None else attached.save_if_needed(iteration, num_floating_point_operations_so_far)


def save_checkpoint(iteration: int, model: Any, optimizer: Any, opt_param_scheduler: Any,
                    num_floating_point_operations_so_far: float | None = None, *, to_storage: bool = False) -> None:
    """The same without asking the intervals."""
    attached = _current_job().attach(model, optimizer, opt_param_scheduler)
    if attached is not None:
        attached.save(iteration, num_floating_point_operations_so_far, to_storage)


def load_checkpoint(model: Any, optimizer: Any, opt_param_scheduler: Any, load_arg: str = "load", strict: bool = True,
                    concat: bool = False, **keywords: Any) -> tuple[int, float]:
    """Puts what was saved last into model, optimizer, scheduler and generators, and into Megatron-LM's counters of
    samples. Returns (iteration, num_floating_point_operations_so_far); (0, 0) at a fresh start.

    In a program of Megatron-LM its own checkpoint is loaded by its own load_checkpoint, with all the arguments given
    here, if the directory named by its argument `load_arg` has a later one, or if there is nothing of ours. With
    concat=True what another number of data-parallel ranks has saved is loaded, too: from storage, ours or Megatron's.
    What lies in memory can only be put back into the layout that it came from.
    """
    attached = _current_job().attach(model, optimizer, opt_param_scheduler)
    stock = _Stock(load_arg, (model, optimizer, opt_param_scheduler, load_arg, strict), keywords)
    if attached is None:
        return stock.load()
    try:
        step = attached.load()
    except (errors.LayoutError, errors.UnrecoverableError) as error:
        if not concat:
            raise type(error)(f"{error}. Start with the model and the parallel sizes that it was saved with, give "
                              "another save_dir, or call load_checkpoint(concat=True) if only the number of "
                              "data-parallel ranks differs") from error
        log.warning("what is on storage is loaded, as concat=True allows: %s", error)
        step = attached.load_published(stock.newest(attached.world))
        if step is None and not stock.there():
            raise
    if step is None:
        return stock.load()
    if stock.newest(attached.world) > step:
        attached.forget()
        return stock.load()
    log.info("resumed at iteration %d: %s", step, attached.checkpoint.restored or "from storage")
    return step, attached.progress.flops


class _Stock:
    """Megatron-LM's own checkpoint."""

    def __init__(self, load_arg: str, positional: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        self._args = _arguments()
        self._dir: Any = getattr(self._args, load_arg, None)
        self._positional = positional
        self._keywords = keywords

    def there(self) -> bool:
        return self._tracked() is not None

    def _tracked(self) -> int | None:
        """The iteration that Megatron would load; None if there is none, 0 if it would not go on from it."""
        try:
            text = (Path(self._dir) / "latest_checkpointed_iteration.txt").read_text().strip()
        except (OSError, TypeError):
            return None
        return int(text) if text.isdigit() and not getattr(self._args, "finetune", False) else 0

    def newest(self, world: World) -> int:
        """The same on every rank. Collective."""
        return max(world.gather(self._tracked() or 0))

    def load(self) -> tuple[int, float]:
        if self._dir is None and getattr(self._args, "pretrained_checkpoint", None) is None:
            return 0, 0
        from megatron.training import checkpointing

        return checkpointing.load_checkpoint(*self._positional, **self._keywords)


def checkpoint() -> Checkpoint | None:
    """What is attached: for wait, query and stats. None before the first load or save, or if the adapter is off."""
    return _job.attached.checkpoint if _job is not None and _job.attached is not None else None


def rewind_generators() -> None:
    """To be called right before training, after a load: what a program makes in between, such as iterators over data,
    may draw from the generators, and then the resumed training is not the one that was interrupted."""
    if _job is not None and _job.attached is not None:
        _job.attached.rewind()


def finalize_easyckpt(job_done: bool = True) -> None:
    """Leaves. job_done=False keeps what was saved in memory for a successor. After it initialize_easyckpt may be called
    again."""
    global _job
    if _job is not None and _job.attached is not None:
        _job.attached.checkpoint.close(job_done)
    _job = None
