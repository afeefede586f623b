# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM and megatron-core 0.16 to 0.19: checkpoints of a training job in the memory of its nodes.

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
collective, as all of these are: every rank calls them. initialize_easyckpt may also come after load_checkpoint, right
before the loop. docs/frameworks/megatron.md says what is saved, docs/frameworks/easyckpt-lines.md how EasyCkpt's own
lines are understood.
"""

import hashlib
import logging
import os
from collections.abc import Callable
from typing import Any

from ... import errors
from ...core.checkpoint import Checkpoint, attach
from ...core.published import open_published
from ...core.saving import NOT_DUE, SaveResult
from ...runtime.settings import ConfigSource, kept_on_storage, save_dir_at, values_of
from ...runtime.world import World, join_world
from ...state.blobs import Blob
from ..api_compat import RequiredApi, usable
from ..framework_format import for_framework, is_framework
from .arguments import arguments, asked_iteration
from .description import Description
from .settings import LogFile, change, interval, log_file_of_node
from .start import Start, goes_on, launches, left_behind, may_be_restarted_by
from .stock_load import StockLoad
from .stock_saves import StockSaves
from .tracker import found_in

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
    RequiredApi(f"{_CORE}.dist_checkpointing.mapping:ShardedTensor"),
    RequiredApi(f"{_CORE}.dist_checkpointing.mapping:ShardedObject"),
    RequiredApi(f"{_CORE}.dist_checkpointing.mapping:ShardedTensorFactory"),
    RequiredApi(f"{_CORE}.num_microbatches_calculator:update_num_microbatches", ("consumed_samples",)),
)


# ---- the job

_COUNTERS = ("consumed_train_samples", "skipped_train_samples", "consumed_valid_samples")


class _Progress:
    """The progress of training, and the settings that its parameters depend on: a blob."""

    def __init__(self, meaning: dict[str, Any], place: str, description: Description) -> None:
        self.flops = 0
        self.start: Start = {"asked": None, "found": None, "launches": []}
        self.start_of_saved: Start | None = None
        self.place = place
        self.description = description
        self._parts = description.text()
        self._iteration = 0
        self._meaning = meaning

    def at(self, iteration: int, flops: Any) -> None:
        self._iteration = iteration
        self.flops = self.flops if flops is None else flops

    def blob(self) -> Blob:
        return Blob("progress", self._take, self._put, fits=self._fits)

    def _take(self) -> dict[str, Any]:
        args = arguments()
        counters = {} if args is None else {name: getattr(args, name, 0) for name in _COUNTERS}
        return {"iteration": self._iteration, "flops": self.flops, "counters": counters, "meaning": self._meaning,
                "place": self.place, "parts": self._parts, "start": self.start}

    def _fits(self, saved: dict[str, Any]) -> None:
        for name, value in self._meaning.items():
            if saved["meaning"].get(name) != value:
                raise errors.LayoutError(f"the model has {name}={value}, and the version that was loaded has "
                                         f"{saved['meaning'].get(name)}: do not continue this training; start with the "
                                         "arguments that it was saved with, or with another save_dir")

    def _put(self, saved: dict[str, Any]) -> None:
        self._iteration, self.flops = saved["iteration"], saved["flops"]
        self.start_of_saved = saved.get("start")
        args = arguments()
        if args is not None and saved["counters"]:
            from megatron.core.num_microbatches_calculator import update_num_microbatches

            for name, value in saved["counters"].items():
                setattr(args, name, value)
            update_num_microbatches(consumed_samples=args.consumed_train_samples)


class _Attached:
    """One model with its optimizer and scheduler, registered."""

    def __init__(self, settings: dict[str, Any], model: list[Any], optimizer: Any, scheduler: Any) -> None:
        from . import contents

        self.of = _identity(model, optimizer, scheduler)
        self.world = join_world()
        self.stock = _stock_saves(settings, self.world)
        mapped = contents.Model(model, self.world.rank)
        self.progress = _Progress(mapped.meaning(), mapped.place, mapped.description())
        mapping = contents.mapping_of(mapped, optimizer, scheduler, [self.progress.blob()], self.world)
        self._mapping = mapping
        self._settings = settings
        self._model, self._optimizer, self._scheduler = model, optimizer, scheduler
        self._drawn: list[object] | None = None
        contents_in_files = for_framework(mapping.contents, **settings)
        self.checkpoint = attach(contents_in_files, world=self.world, fences=mapping.fences, **settings)
        if self.stock is not None:
            self.checkpoint.outside_storage = self.stock.health
        self._asked: int | None = None
        self._begun = False
        self.asked = asked_iteration(arguments())
        self.progress.start = {"asked": self.asked, "found": None, "launches": launches(os.environ)}

    def begin(self, iteration: int, found: list[int] | None) -> None:
        """The training continues from this iteration. found: what Megatron has, tracker.found_in."""
        self._begun = True
        self.progress.start["found"] = found
        if self.stock is not None:
            self.stock.begin(self.progress.start, iteration)

    def _begin_by_itself(self, iteration: int) -> None:
        """Megatron has loaded by itself, before initialize_easyckpt, or nothing was loaded."""
        if self._begun:
            return
        args, found = arguments(), None
        try:
            found = found_in(getattr(args, "load", None))
        except errors.IoError as error:
            log.warning("if this training has gone back to an earlier iteration, a later start may load Megatron's own "
                        "checkpoint instead of what is saved now: %s", error)
        self.begin(getattr(args, "iteration", iteration - 1), found)

    def save_if_needed(self, iteration: int, flops: Any, save_stock: Callable[[], object] | None) -> SaveResult:
        if iteration == self._asked:  # by hand and by the hook
            return NOT_DUE
        self._asked = iteration
        self._begin_by_itself(iteration)
        self.progress.at(iteration, flops)
        for_stock = self.stock is not None and self.checkpoint.storage_due(iteration)
        result = self.checkpoint.save_checkpoint_if_needed(iteration)
        if for_stock:
            self._save_stock(iteration, save_stock)
        elif self.stock is not None:
            self.stock.look()
        return result

    def _save_stock(self, iteration: int, save: Callable[[], object] | None) -> None:
        """After the save to memory, since Megatron may gather parameters."""
        if self.stock is not None:
            self.checkpoint.fence()
            self.stock.save(iteration, self._model, self._optimizer, self._scheduler, self.progress.flops, save)

    def save(self, iteration: int, flops: Any, to_storage: bool) -> None:
        self._asked = iteration
        self._begin_by_itself(iteration)
        self.progress.at(iteration, flops)
        self.checkpoint.save_checkpoint(iteration, to_storage)
        if to_storage and self.stock is not None:
            self.stock.finish()  # for the one before
            self._save_stock(iteration, None)

    def load(self, step: int | None = None) -> int | None:
        """None: the newest."""
        self._mapping.settle()
        self._asked = None
        step = self.checkpoint.load_checkpoint(step)
        self._drawn = None if step is None else self._generators()
        return step

    def torn(self) -> bool:
        """Whether a load has failed while it copied, on any rank. Collective."""
        return any(self.world.gather(self.checkpoint.health().records_torn))

    def all_ranks(self, test: Callable[[], bool]) -> bool:
        """Whether it is true on all. Collective."""
        return all(self.world.gather(self.world.agreed(test)))

    def _generators(self) -> list[object]:
        return [blob.capture() for blob in self._mapping.generators]

    def load_published(self, stock_newest: int, step: int | None = None) -> int | None:
        """Loads what was published with other parallel sizes; step None: the newest. Returns None if there is nothing,
        or if Megatron's own checkpoint is later."""
        from . import concat

        try:
            version = open_published(self._settings["config"], step=step, overrides=self._settings["overrides"])
        except errors.NotFoundError:
            return None
        with version:
            if version.step < stock_newest:
                return None
            # Megatron seeds all data-parallel ranks alike unless it is told otherwise.
            same = not getattr(arguments(), "data_parallel_random_init", False)
            here = concat.here_of(self.progress.place, self.progress.description, self.world, same)
            concat.put(version, self._mapping.contents, here, self.world)
            self.checkpoint.filled_elsewhere()
            self._drawn = self._generators()
            return version.step

    def forget(self) -> None:
        """Called when something else replaces what was loaded. Megatron's own load expects a new scheduler."""
        self._drawn = None
        if self._scheduler is not None:
            self._scheduler.num_steps = 0

    def rewind(self) -> None:
        """Sets the generators back to where they were right after the load."""
        if self._drawn is not None:
            for blob, state in zip(self._mapping.generators, self._drawn, strict=True):
                blob.apply(state)


def _stock_saves(settings: dict[str, Any], world: World) -> StockSaves | None:
    """None unless storage_format is framework."""
    config, overrides = settings["config"], settings["overrides"]
    if not is_framework(config, overrides):
        return None
    return StockSaves(arguments(), world, kept_on_storage(config, overrides))


def _chunks(model: Any) -> list[Any]:
    return list(model) if isinstance(model, (list, tuple)) else [model]


def _identity(model: list[Any], optimizer: Any, scheduler: Any) -> tuple[Any, ...]:
    return (*map(id, model), id(optimizer), id(scheduler))


class _Job:
    """The arguments of initialize_easyckpt, and what is attached."""

    def __init__(self, config: ConfigSource, overrides: dict[str, Any], by_default: bool = False) -> None:
        self.config = config
        self.overrides = overrides
        self.by_default = by_default  # a load or the hook came before initialize_easyckpt
        self.log_file: LogFile | None = None
        self.attached: _Attached | None = None

    def adopt(self, config: ConfigSource, wanted: dict[str, Any]) -> None:
        """Takes the arguments of an initialize_easyckpt that comes after the load. Collective."""
        self.by_default = False
        if self.attached is None:
            self.config, self.overrides = self.config if config is None else config, wanted
            return
        now, world = self.settings(), self.attached.world
        in_force = values_of(now["config"], now["overrides"])
        wanted = values_of(config, wanted)
        path = wanted.pop("log_file_path", None)
        left = change(world, in_force, now["config"], now["overrides"], wanted)
        if self.attached.stock is not None and "max_ckpt_num" not in left:
            self.attached.stock.keep = wanted.get("max_ckpt_num", self.attached.stock.keep)
        if path is not None and path != in_force.get("log_file_path"):
            self._log_to(path, world.rank)
        if left and world.rank == 0:
            log.warning("%s cannot be changed any more, since the load before initialize_easyckpt has begun the job: "
                        "call it before the load, or name the configuration in TIERCKPT_CONFIG", ", ".join(left))

    def _log_to(self, path: str, rank: int) -> None:
        self.log_file = LogFile(path, rank)
        log.addHandler(self.log_file)
        log.info("the messages of this rank are in %s from here on; those of the agent, which the load has started, "
                 "stay in its own log (`tierckpt status` names it)", path)

    def close(self, job_done: bool) -> None:
        if self.attached is not None:
            stock = self.attached.stock
            if stock is not None:
                if job_done:
                    job_done = stock.finish()
                stock.close()
            self.attached.checkpoint.close(job_done)
        if self.log_file is not None:
            log.removeHandler(self.log_file)
            self.log_file.close()

    def settings(self) -> dict[str, Any]:
        """For attach. Without any configuration versions go below Megatron-LM's --save, one job for each of these."""
        args = arguments()
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


def begin() -> _Job:
    """For a load, or the hook, that comes before initialize_easyckpt: TIERCKPT_CONFIG in the environment names the
    configuration."""
    global _job
    if _job is None:
        _job = _Job(os.environ.get("TIERCKPT_CONFIG"), {}, by_default=True)
    return _job


def _current_job() -> _Job:
    if _job is None:
        raise errors.InvalidArgumentError("call initialize_easyckpt before the first save")
    return _job


def initialize_easyckpt(save_mem_interval: int | str | None = None, save_storage_interval: int | str | None = None,
                        max_ckpt_num: int | None = None, log_file_path: str | None = None, *,
                        config: ConfigSource = None, **keys: Any) -> None:
    """Call it once, before the first save. It does not attach yet. After a load, which begins the job with the
    configuration that $TIERCKPT_CONFIG names, it changes what a running job can change (the intervals and
    max_ckpt_num), and a warning names the rest. It is collective then.

    save_mem_interval      save to memory every so many iterations, or at a period ("30s"); 0 or less: never
    save_storage_interval  the same for storage
    max_ckpt_num           how many versions to keep on storage
    log_file_path          log file of agents and trainers, one for each node: test.log becomes test.<node>.log
    config                 path of a JSON file, or a dict, with further keys of the configuration; the arguments win
                           over it
    keys                   further keys of the configuration. Without save_dir, versions are published below <--save of
                           Megatron-LM>/tierckpt

    Raises InvalidArgumentError if it was called before and its checkpoints are in use."""
    global _job
    if _job is not None and _job.attached is not None and not _job.by_default:
        raise errors.InvalidArgumentError("initialize_easyckpt was called before, and its checkpoints are in use: call "
                                          "finalize_easyckpt first")
    named = {"save_mem_interval": interval(save_mem_interval),
             "save_storage_interval": interval(save_storage_interval), "max_ckpt_num": max_ckpt_num}
    wanted = {**keys, **{key: value for key, value in named.items() if value is not None}}
    if log_file_path is not None:
        wanted["log_file_path"] = log_file_of_node(log_file_path, values_of(config, wanted))
    if _job is not None and _job.by_default:
        _job.adopt(config, wanted)
    else:
        _job = _Job(config, wanted)


def save_checkpoint_if_needed(iteration: int, model: Any, optimizer: Any, opt_param_scheduler: Any,
                              num_floating_point_operations_so_far: float | None = None,
                              save_stock: Callable[[], object] | None = None) -> SaveResult:
    """Saves if the configured intervals say so. Call it once per iteration, after the steps of optimizer and scheduler,
    with the number of iterations that are done. The result is true if a save was started. It is copied while training
    goes on; the next optimizer step waits for the rest. With storage_format framework, `save_stock` saves what goes to
    storage in the place of Megatron-LM's save_checkpoint."""
    attached = _current_job().attach(model, optimizer, opt_param_scheduler)
    if attached is None:
        return NOT_DUE
    return attached.save_if_needed(iteration, num_floating_point_operations_so_far, save_stock)


def save_checkpoint(iteration: int, model: Any, optimizer: Any, opt_param_scheduler: Any,
                    num_floating_point_operations_so_far: float | None = None, *, to_storage: bool = False) -> None:
    """Saves whatever the intervals say."""
    attached = _current_job().attach(model, optimizer, opt_param_scheduler)
    if attached is not None:
        attached.save(iteration, num_floating_point_operations_so_far, to_storage)


def load_checkpoint(model: Any, optimizer: Any, opt_param_scheduler: Any, load_arg: str = "load", strict: bool = True,
                    concat: bool = False, **keywords: Any) -> tuple[int, float]:
    """Restores the newest version into model, optimizer, scheduler and generators, and into the sample counters of
    Megatron-LM. Returns (iteration, num_floating_point_operations_so_far), (0, 0) at a fresh start.

    In a program of Megatron-LM, its own load_checkpoint loads its own checkpoint, with all the arguments that are given
    here, if the directory in its argument `load_arg` has a later one, or if Tierckpt has none. With --ckpt-step the
    version of that iteration is loaded, ours or Megatron's; if the same torchrun, or Slurm, starts the training again,
    it continues from what it has saved since. With concat=True a version of other parallel sizes is loaded, too, from
    storage, ours or Megatron's; memory can only be restored into the layout that was saved.

    Raises LayoutError or UnrecoverableError if something was saved that cannot be restored, and NotFoundError if there
    is nothing of the iteration that --ckpt-step names."""
    attached = begin().attach(model, optimizer, opt_param_scheduler)
    stock = StockLoad(arguments(), load_arg, (model, optimizer, opt_param_scheduler, load_arg, strict), keywords,
                      None if attached is None else attached.stock)
    if attached is None:
        return stock.load()
    found = stock.found(attached.world)
    loaded = _loaded(attached, stock, concat, found)
    attached.begin(loaded[0], found)
    return loaded


def _loaded(attached: _Attached, stock: StockLoad, concat: bool, found: list[int] | None) -> tuple[int, float]:
    if attached.asked is None:
        return _load_newest(attached, stock, concat, found)[0]
    launched_by = {launch for of_rank in attached.world.gather(may_be_restarted_by(os.environ)) for launch in of_rank}
    if launched_by:
        try:
            loaded, saved = _load_newest(attached, stock, concat, found)
        except (errors.LayoutError, errors.UnrecoverableError) as error:
            log.warning("the newest version is not loaded: %s", error)
        else:
            # Some ranks may have moved to nodes with another torchrun.
            if any(attached.world.gather(goes_on(attached.asked, loaded[0], saved, launched_by))):
                return loaded
        attached.forget()
    return _load_asked(attached, stock, attached.asked, concat)


def _load_asked(attached: _Attached, stock: StockLoad, asked: int, concat: bool) -> tuple[int, float]:
    """What --ckpt-step names."""
    if attached.world.rank == 0:
        log.warning("iteration %d is loaded, as --ckpt-step asks, even if later ones were saved. Remove --ckpt-step "
                    "before the next start, or it will go back to this iteration again", asked)
    try:
        step = attached.load(asked)
    except (errors.LayoutError, errors.UnrecoverableError) as error:
        torn = attached.torn()
        step = attached.load_published(0, asked) if concat else None
        if step is None and not attached.all_ranks(lambda: stock.has(asked)):
            raise type(error)(f"--ckpt-step {asked}: {error}, and {stock.absence(asked)}") from error
        if step is None and torn and not stock.loads_all(attached.world):
            raise
        if step is None:
            log.warning("Megatron's own checkpoint is loaded: %s", error)
            attached.forget()
    if step is None:
        return stock.load_asked(asked, attached.world, attached.checkpoint)
    return step, attached.progress.flops


def _load_newest(attached: _Attached, stock: StockLoad, concat: bool,
                 found: list[int] | None) -> tuple[tuple[int, float], Start | None]:
    """What was loaded, and how the start had begun that has saved it, if that is known."""
    newest = stock.newest(attached.world)
    try:
        step = attached.load()
    except (errors.LayoutError, errors.UnrecoverableError) as error:
        # After a load that failed while it copied, weights alone would leave an optimizer with parts of several states.
        eligible = not attached.torn() or stock.loads_all(attached.world)
        if eligible and attached.stock is not None and newest > 0:
            log.warning("Megatron's own checkpoint is loaded: %s", error)
            attached.forget()
            return stock.load_for(attached.checkpoint), stock.start_of(newest)
        if not concat:
            raise type(error)(f"{error}. Start with the model and the parallel sizes that it was saved with, give "
                              "another save_dir, or call load_checkpoint(concat=True) if only the parallel sizes "
                              "differ") from error
        log.warning("what is on storage is loaded, as concat=True allows: %s", error)
        step = attached.load_published(newest if eligible else 0)
        if step is None and not (eligible and stock.there()):
            raise
    if step is None:
        return stock.load_for(attached.checkpoint), stock.start_of(newest)
    saved = attached.progress.start_of_saved
    if newest > step and not attached.world.gather(left_behind(found, saved))[0]:
        attached.forget()
        return stock.load(), stock.start_of(newest)
    log.info("iteration %d is loaded: %s", step, attached.checkpoint.restored or "from storage")
    return (step, attached.progress.flops), saved


def checkpoint() -> Checkpoint | None:
    """The attached tierckpt.Checkpoint, for wait, query and stats. None before the first load or save, or if the
    adapter is off."""
    return _job.attached.checkpoint if _job is not None and _job.attached is not None else None


def wait_for_stock() -> None:
    """Before an ordered exit: waits for what is being written with storage_format framework."""
    if _job is not None and _job.attached is not None and _job.attached.stock is not None:
        _job.attached.stock.finish()


def saves_stock() -> bool:
    """Whether what goes to storage is saved by Megatron-LM itself: storage_format framework."""
    return _job is not None and _job.attached is not None and _job.attached.stock is not None


def rewind_generators() -> None:
    """Call it right before training, after a load. What a program makes in between, such as iterators over data, may
    draw from the generators; without this, the resumed training would differ from the uninterrupted one."""
    if _job is not None and _job.attached is not None:
        _job.attached.rewind()


def finalize_easyckpt(job_done: bool = True) -> None:
    """Not required. Ends the use of Tierckpt; initialize_easyckpt may be called again. job_done=False keeps what was
    saved in memory for a successor, for linger_s seconds, as it is kept if a program does not call this."""
    global _job
    if _job is not None:
        _job.close(job_done)
    _job = None
