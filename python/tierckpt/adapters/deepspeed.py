# SPDX-License-Identifier: Apache-2.0
"""DeepSpeed: saves the state of an engine, ZeRO 0 to 3, and writes DeepSpeed's own checkpoint files in the background.

    engine, optimizer, _, scheduler = deepspeed.initialize(...)
    checkpoint = tierckpt.deepspeed.attach(engine, config="tierckpt.json", client_state=position)
    checkpoint.load_checkpoint()
    ...
        engine.backward(loss)
        engine.step()
        checkpoint.save_checkpoint_if_needed()

A save reads the optimizer's own tensors; it needs no collective and no barrier."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.distributed import ProcessGroup

from .. import errors
from ..core.checkpoint import Checkpoint
from ..core.checkpoint import attach as attach_contents
from ..core.lifetime import Closing
from ..core.saving import NOT_DUE, SaveResult
from ..runtime.native import job_name
from ..runtime.settings import ConfigSource, Overrides, configuration, kept_on_storage, local_save_dir, values_of
from ..runtime.world import World, join_world
from ..state import export_map, groups, module_state, twins, walk_model
from ..state.arguments import Stateful
from ..state.blobs import Blob
from ..state.contents import Contents
from ..state.rng import Rng
from ..state.sharding import Placer
from ..state.user_state import UserState
from ..state.walk_zero import optimizer_of
from .agreement import Agreement
from .api_compat import RequiredApi, usable
from .background_writer import BackgroundWriter, copy_to_cpu, make_directory, write_durably
from .framework_format import for_framework, is_framework
from .reshard import load_any_layout
from .zero_files import ZeroFiles

try:
    from deepspeed.runtime.checkpoint_engine.checkpoint_engine import CheckpointEngine as _CheckpointEngine
except ImportError:  # `usable` says so
    _CheckpointEngine = object

log = logging.getLogger("tierckpt")

_ENGINE = "deepspeed.runtime.engine:DeepSpeedEngine"
_ZERO = "deepspeed.runtime.zero.stage_1_and_2:DeepSpeedZeroOptimizer"
_ZERO3 = "deepspeed.runtime.zero.stage3:DeepSpeedZeroOptimizer_Stage3"
_FILES = "deepspeed.runtime.checkpoint_engine.checkpoint_engine:CheckpointEngine"
REQUIRED_API = (
    RequiredApi(f"{_ENGINE}._take_model_step", ("self", "lr_kwargs")),
    RequiredApi(f"{_ENGINE}.save_checkpoint", ("self", "save_dir", "tag", "client_state", "save_latest")),
    RequiredApi(f"{_ENGINE}.load_checkpoint", ("self", "load_dir", "tag")),
    RequiredApi(f"{_ENGINE}._commit_decoupled_checkpoint", ("self",)),
    RequiredApi(f"{_ZERO}._link_all_hp_params", ("self",)),
    RequiredApi(f"{_ZERO3}._set_fp32_optimizer_param_groups", ("self",)),
    RequiredApi(f"{_ZERO3}._clear_fp32_optimizer_param_groups", ("self",)),
    RequiredApi(f"{_ZERO3}.checkpoint_event_prologue", ("self",)),
    RequiredApi(f"{_ZERO3}.checkpoint_event_epilogue", ("self",)),
    RequiredApi("deepspeed.runtime.fp16.unfused_optimizer:FP16_UnfusedOptimizer.initialize_optimizer_states",
                ("self",)),
    RequiredApi("deepspeed.utils.tensor_fragment:tensor_fragment", ("lp_fragment_address", "hp_fragment_address",
                                                             "param_group_index")),
    RequiredApi("deepspeed.utils.tensor_fragment:fragment_address", ("numel", "start")),
    RequiredApi(f"{_FILES}.create", ("self", "info")),
    RequiredApi(f"{_FILES}.save", ("self", "state_dict", "path")),
    RequiredApi(f"{_FILES}.load", ("self", "path", "map_location")),
    RequiredApi(f"{_FILES}.commit", ("self", "info")),
    RequiredApi(f"{_FILES}.get_commit_info", ("self",)),
    RequiredApi(f"{_FILES}.is_decoupled", ("self",)),
)


def attach(engine: Any, *, config: ConfigSource = None, overrides: Overrides = None,
           client_state: dict[str, Any] | Stateful | None = None, group: ProcessGroup | None = None,
           capacity: Mapping[str, int] | None = None, files_dir: str | os.PathLike[str] | None = None,
           ) -> "EngineCheckpoint | NoCheckpoint":
    """Registers the state of an engine. Call it right after deepspeed.initialize. Collective.

    config        path of a JSON file, or a dict with the same keys; default: "tierckpt" in DeepSpeed's configuration
    overrides     dict of keys that override those of config
    client_state  what else is to be restored, such as the position in the data: a dict of JSON values and tensors, or
                  an object with state_dict() and load_state_dict(). Each rank has its own
    group         process group of all ranks for the collectives of the set-up, as for tierckpt.init
    capacity      as for tierckpt.init, for "client_state", "optimizer", "rng", and "engine" (counts, loss scale and
                  learning rate schedule)
    files_dir     with storage_format framework, the directory of DeepSpeed's checkpoints; default:
                  <save_dir>/<job>/deepspeed

    Returns an EngineCheckpoint. engine.save_checkpoint still writes DeepSpeed's own files, but in the background: see
    CheckpointEngine. If this release of DeepSpeed is not known, one warning says so, a NoCheckpoint is returned, and
    training goes on without saves. Raises UnsupportedError for an engine whose state would not be saved as a whole."""
    if not usable("tierckpt.deepspeed", "deepspeed", REQUIRED_API):
        return NoCheckpoint()
    _refuse_unknown(engine)
    config = _configuration(engine, config)
    if is_framework(config, overrides):
        _refuse_decoupled(engine)
    world = join_world(group)
    contents = for_framework(_contents(engine, world, client_state, dict(capacity or {})), config, overrides)
    twins.confirm(contents.records, world)
    files = _Files(engine, world)
    try:
        own = _own_files(engine, world, config, overrides, client_state, files_dir)
        return EngineCheckpoint(engine, contents, world, config, overrides, files, own)
    except BaseException:
        files.remove()
        raise


def _configuration(engine: Any, config: ConfigSource) -> ConfigSource:
    return engine._config._param_dict.get("tierckpt") if config is None else config


def _own_files(engine: Any, world: World, config: ConfigSource, overrides: Overrides,
               client_state: dict[str, Any] | Stateful | None,
               files_dir: str | os.PathLike[str] | None) -> ZeroFiles | None:
    """None unless storage_format is framework."""
    if not is_framework(config, overrides):
        return None
    if files_dir is None:
        save_dir = values_of(config, overrides).get("save_dir")
        if not save_dir:
            raise errors.ConfigError("storage_format framework needs save_dir or attach(files_dir=), below which "
                                     "DeepSpeed's checkpoints go")
        save_dir = local_save_dir(save_dir, "DeepSpeed writes files: attach(files_dir=) names their directory")
        files_dir = os.path.join(save_dir, job_name(**configuration(config, overrides)),
                                 "deepspeed")
    return ZeroFiles(engine, world, os.path.abspath(files_dir), kept_on_storage(config, overrides), client_state)


def _refuse_decoupled(engine: Any) -> None:
    if engine.checkpoint_engine.is_decoupled():
        raise errors.UnsupportedError("with storage_format framework tierckpt.deepspeed writes DeepSpeed's files in "
                                      "the background, and this engine has a checkpoint engine that does so by itself: "
                                      "take one of the two out of the configuration")


def _refuse_unknown(engine: Any) -> None:
    """Raises for engines whose state would be saved only in part."""
    from deepspeed.runtime.engine import DeepSpeedEngine

    if not isinstance(engine, DeepSpeedEngine):
        raise errors.InvalidArgumentError("attach needs the engine that deepspeed.initialize returns first, it got a "
                                          f"{type(engine).__name__}")
    if isinstance(engine.checkpoint_engine, CheckpointEngine):
        raise errors.InvalidArgumentError("this engine has a checkpoint already: close that one first")
    offload = engine.zero_offload_param()
    present = {
        "the pipeline engine": type(engine) is not DeepSpeedEngine,
        "experts (MoE)": engine.has_moe_layers,
        "model parallel ranks": engine.mp_world_size > 1,
        "an engine without an optimizer": engine.optimizer is None or not hasattr(engine.optimizer, "param_groups"),
        "offload to NVMe": engine.zero_nvme_offload_optimizer() or (offload is not None and offload.device == "nvme"),
        "ZenFlow": bool(engine.zenflow),
        "SuperOffload": engine.super_offload(),
        "curriculum learning with a data sampler": engine.curriculum_learning_enabled(),
        "quantized frozen weights": engine.zero_quantized_nontrainable_weights(),
        "random-LTD": engine.random_ltd_enabled(),
    }
    for what, here in present.items():
        if here:
            raise errors.UnsupportedError(f"tierckpt.deepspeed does not know {what}: use engine.save_checkpoint for it")


# ---- contents


def _contents(engine: Any, world: World, client_state: dict[str, Any] | Stateful | None,
              capacity: dict[str, int]) -> Contents:
    replicas = groups.of_process_group(engine.seq_data_parallel_group)
    placer = Placer(world.rank, replicas)
    model = walk_model.Model(engine.module, None)
    names = walk_model.named_parameters(engine.module)
    optimizer = optimizer_of(engine, names, placer)
    rng, scalars = Rng(elastic=True), _Scalars(engine)
    extra = None if client_state is None else UserState(client_state, reshard="any")
    records = optimizer.weights() + walk_model.buffer_records(model, placer) + optimizer.records()
    records += (extra.records(placer) if extra else []) + [rng.record(placer)]
    # All ranks count alike, and their optimizers have the same settings.
    blobs = [Blob("engine", scalars.capture, scalars.apply, capacity.get("engine"), reshard="any"),
             Blob("optimizer", optimizer.capture, optimizer.apply, capacity.get("optimizer", optimizer.room()),
                  reshard="any", fits=optimizer.fits, structural="optimizer" not in capacity)]
    blobs += [replace(extra.blob(capacity.get("client_state")), name="client_state")] if extra else []
    blobs += module_state.blobs_of([("", engine.module)], capacity.get("model"))
    blobs.append(rng.blob(capacity.get("rng")))
    unknown = capacity.keys() - {blob.name for blob in blobs}
    blobs.append(export_map.blob_of(_wholes(engine.module, names), {}, world))
    if unknown:
        raise errors.InvalidArgumentError(f"capacity= has {sorted(unknown)}, it knows {[blob.name for blob in blobs]}")
    return Contents(records, blobs, check=optimizer.check)


def _wholes(module: torch.nn.Module, names: dict[str, torch.nn.Parameter]) -> list[export_map.Whole]:
    """All weights are saved under their own names, those of ZeRO 3 as flat pieces of a whole whose shape it knows."""
    buffers = {name: getattr(owner, own) for name, owner, own in walk_model.saved_buffers(module)}
    return [export_map.as_saved(name, tensor, getattr(tensor, "ds_shape", None))
            for name, tensor in {**names, **buffers}.items()]


class _Scalars:
    """What the engine counts, the learning rate schedule, and the loss scale."""

    _COUNTS = ("global_steps", "global_samples", "skipped_steps", "micro_steps")
    _OF_OPTIMIZER = ("custom_loss_scaler", "external_loss_scale", "overflow")

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def _scalers(self) -> dict[str, Any]:
        """The objects that keep a loss scale as attributes."""
        found = {name: getattr(self._engine.optimizer, name, None) for name in ("loss_scaler", "loss_scale_config")}
        return {name: scaler for name, scaler in found.items() if scaler is not None}

    def _stateful(self) -> dict[str, Any]:
        found = {
            "lr_scheduler": self._engine.lr_scheduler,
            "gradscaler": self._engine.torch_autocast_z0_gradscaler,
            "zero_gradscaler": getattr(self._engine.optimizer, "torch_autocast_gradscaler", None),
        }
        return {name: thing for name, thing in found.items() if hasattr(thing, "state_dict")}

    def capture(self) -> dict[str, Any]:
        optimizer = self._engine.optimizer
        return {
            "counts": {name: getattr(self._engine, name) for name in self._COUNTS},
            "optimizer": {name: getattr(optimizer, name) for name in self._OF_OPTIMIZER if hasattr(optimizer, name)},
            "scalers": {name: {key: value for key, value in vars(scaler).items() if _is_plain(value)}
                        for name, scaler in self._scalers().items()},
            "state": {name: thing.state_dict() for name, thing in self._stateful().items()},
        }

    def apply(self, saved: dict[str, Any]) -> None:
        for target, values in ((self._engine, saved["counts"]), (self._engine.optimizer, saved["optimizer"])):
            for name, value in values.items():
                setattr(target, name, value)
        for name, scaler in self._scalers().items():
            vars(scaler).update(saved["scalers"].get(name, {}))
        for name, thing in self._stateful().items():
            if name in saved["state"]:
                thing.load_state_dict(saved["state"][name])


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


# ---- the checkpoint


class EngineCheckpoint(Closing):
    """The checkpoint of an engine, made by attach. It also has the methods of Checkpoint (query, wait, stats, health)
    and its `restored`. Steps are engine.global_steps."""

    def __init__(self, engine: Any, contents: Contents, world: World, config: ConfigSource, overrides: Overrides,
                 files: "_Files", own: ZeroFiles | None) -> None:
        self._engine = engine
        self._files, self._own = files, own
        self._last_failed = False
        self._saveable_at = engine.micro_steps
        self._saved_at = None
        self._load = partial(load_any_layout, contents=contents, world=world, config=config, overrides=overrides)
        self._checkpoint: Checkpoint = attach_contents(contents, world=world, config=config, overrides=overrides,
                                                       fences=[self._before_step])

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._checkpoint, name)

    def _before_step(self, fence: Callable[[], None]) -> Callable[[], None]:
        engine, step = self._engine, self._engine._take_model_step

        def fenced(*arguments: Any, **named: Any) -> None:
            fence()
            step(*arguments, **named)
            self._saveable_at = engine.micro_steps + 1  # engine.step() adds it at its end

        engine._take_model_step = fenced
        return lambda: setattr(engine, "_take_model_step", step)

    def _between_steps(self) -> bool:
        """Whether no gradients of an unfinished accumulation exist, which would not be saved."""
        return self._engine.micro_steps == self._saveable_at

    # ---- load

    def load_checkpoint(self, step: int | None = None) -> int | None:
        """Restores the newest version, or the one of a step, into the engine, client_state and generators. Collective.
        Returns its step (engine.global_steps), or None if nothing was ever saved. A version of another number of ranks
        is read from storage. Raises as Checkpoint.load_checkpoint does."""
        loaded = self._load_version(step) if self._own is None else self._load_newest(self._own, step)
        self._saveable_at, self._saved_at = self._engine.micro_steps, self._engine.global_steps
        return loaded

    def filled_elsewhere(self) -> None:
        """As Checkpoint.filled_elsewhere."""
        self._checkpoint.filled_elsewhere()

    def _load_version(self, step: int | None) -> int | None:
        partitioned = self._engine.zero_optimization_partition_weights()
        if partitioned:
            self._engine.optimizer.checkpoint_event_prologue()
        try:
            return self._load(self._checkpoint, step=step)
        finally:
            if partitioned:
                self._engine.optimizer.checkpoint_event_epilogue()

    def _load_newest(self, own: ZeroFiles, step: int | None) -> int | None:
        """A version, most often in memory, or DeepSpeed's own checkpoint if that is later."""
        loaded, why = None, None
        try:
            loaded = self._load_version(step)
        except (errors.LayoutError, errors.UnrecoverableError, errors.CorruptError) as error:
            why = error
        newest = own.newest() if step is None else step if loaded is None and own.has(step) else None
        if newest is None or newest <= (loaded or 0):
            if why is not None:
                raise why
            return loaded
        log.info("step %d is loaded from DeepSpeed's files in %s (Tierckpt: %s)", newest, own.directory,
                 why or f"step {loaded}")
        own.load(newest)
        self._checkpoint.restored = None
        self._checkpoint.count_as_loaded()
        self._checkpoint.filled_elsewhere()
        return newest

    # ---- save

    def save_checkpoint_if_needed(self, step: int | None = None) -> SaveResult:
        """Call it after each engine.step(), also within an accumulation of gradients, where it does nothing. The result
        is true if a save was started. `step` is engine.global_steps by default."""
        if not self._between_steps() or self._engine.global_steps in (0, self._saved_at):
            return NOT_DUE
        self._saved_at = self._engine.global_steps
        step = self._engine.global_steps if step is None else step
        if self._own is not None and self._checkpoint.storage_due(step):
            self._own.save(step)
        return self._checkpoint.save_checkpoint_if_needed(step)

    def save_checkpoint(self, step: int | None = None, to_storage: bool = False) -> SaveResult:
        """Saves whatever the intervals say. Every rank must save the same steps. Raises InvalidArgumentError within an
        accumulation of gradients."""
        self._refuse_half_a_step()
        step = self._engine.global_steps if step is None else step
        if self._own is not None and to_storage:
            self._own.save(step)
        return self._checkpoint.save_checkpoint(step, to_storage)

    def save_last(self, step: int | None = None, timeout: float = 600) -> None:
        """Ends a training: returns when this step is on storage. See Checkpoint.save_last."""
        self._refuse_half_a_step()
        step = self._engine.global_steps if step is None else step
        if self._own is None:
            self._checkpoint.save_last(step, timeout)
        else:
            self._save_last(self._own, step, timeout)

    def _save_last(self, own: ZeroFiles, step: int, timeout: float) -> None:
        self._last_failed = True
        own.wait(timeout)
        if own.newest() != step:
            self._checkpoint.save_checkpoint(step)  # for the next start, if storage fails
            own.save(step)
            own.wait(timeout)
        if own.newest() != step:
            raise errors.IoError(f"step {step} could not be written to {own.directory}: see the log")
        self._last_failed = False

    def _refuse_half_a_step(self) -> None:
        if not self._between_steps():
            raise errors.InvalidArgumentError(
                "an accumulation of gradients is unfinished, and its gradients are not saved: call this "
                "after the engine.step() that ends the accumulation")
        self._saved_at = self._engine.global_steps

    # ---- end

    def close(self, job_done: bool = True) -> None:
        """Waits until the files of engine.save_checkpoint are written, and ends the use of this checkpoint. See
        Checkpoint.close."""
        self._files.remove()
        if job_done and self._last_failed:
            log.warning("the last step is not on storage, so the agents keep their memory for linger_s: start the job "
                        "again to continue from it")
        self._checkpoint.close(job_done and not self._last_failed)


class NoCheckpoint(Closing):
    """Replaces an EngineCheckpoint if this release of DeepSpeed is not known: it saves nothing and finds nothing."""

    restored = None

    def load_checkpoint(self, step: int | None = None) -> None:
        return None

    def filled_elsewhere(self) -> None:
        pass

    def save_checkpoint_if_needed(self, step: int | None = None) -> SaveResult:
        return NOT_DUE

    def save_checkpoint(self, step: int | None = None, to_storage: bool = False) -> SaveResult:
        return NOT_DUE

    def save_last(self, step: int | None = None, timeout: float = 600) -> None:
        pass

    def fence(self) -> None:
        pass

    def wait(self, stage: str, step: int | None = None, timeout: float = 60) -> None:
        pass

    def query(self) -> None:
        return None

    def stats(self) -> None:
        return None

    def close(self, job_done: bool = True) -> None:
        pass


# ---- DeepSpeed's own files


class CheckpointEngine(_CheckpointEngine):
    """Lets another checkpoint engine write its files while training continues. save copies the state and returns. The
    files of a checkpoint appear one by one, each of them complete and durable. `latest` names a checkpoint when all of
    its files are durable on every rank. The next checkpoint waits for the one before."""

    def __init__(self, inner: Any, agree: Callable[[bool], bool]) -> None:
        super().__init__()
        self.name = "tierckpt"
        self.inner = inner
        self._writer = BackgroundWriter(agree)
        self._info: Any = None
        self._parts: list[Future[Any]] | None = None  # within `together`
        self.beside: Callable[[], None] | None = None
        """Called once, to save further files of the next checkpoint, which is complete when they are, too."""

    def create(self, info: Any) -> None:
        self.wait()
        self._info = info
        self.inner.create(info)

    def save(self, state_dict: Any, path: str) -> None:
        state = copy_to_cpu(state_dict)
        self._writer.write(path, lambda partial_path: self.inner.save(state, partial_path))

    def load(self, path: str, map_location: Any = None) -> Any:
        self.wait()
        return self.inner.load(path, map_location=map_location)

    def commit(self, info: Any) -> Any:
        """For callers that commit themselves, as save_16bit_model does: returns when the files of this rank are
        durable. Raises IoError if one was not written."""
        if not self._writer.settle():
            raise errors.IoError(f"files of {info.tag} were not written, see the log")
        return self.inner.commit(info)

    def finish(self, first_rank: bool) -> None:
        """Called after engine.save_checkpoint. Collective."""
        info = self._info
        self._save_beside()

        def done() -> None:
            self.inner.commit(info)
            if first_rank and info.save_latest:
                latest = os.path.join(info.save_dir, "latest")
                write_durably(latest, lambda partial_path: Path(partial_path).write_text(info.tag))

        finished = self._writer.finish(f"checkpoint {info.tag} in {info.save_dir}", done)
        if self._parts is not None:
            self._parts.append(finished)

    def _save_beside(self) -> None:
        beside, self.beside = self.beside, None
        if beside is None:
            return
        try:
            beside()
        except OSError as error:
            log.error("files of %s were not written: %s", self._info.tag, error)
            self._writer.fail()

    def abandon(self) -> None:
        """Called if engine.save_checkpoint has raised: the other ranks wait for this one's answer. Collective, in the
        place of finish."""
        self.beside = None
        self._writer.fail()
        self._writer.finish("the checkpoint that has failed", lambda: None)

    @contextmanager
    def together(self, what: str, *stages: Callable[[], None]) -> Iterator[BackgroundWriter]:
        """What is saved within the with-statement, by engine.save_checkpoint or the writer, is complete as a whole or
        not at all. If it is complete, the thread calls each stage when the one before it is done on every rank.
        Collective."""
        self._parts = parts = list[Future[Any]]()
        try:
            with self._writer.together(what, *stages, parts=parts) as writer:
                yield writer
        finally:
            self._parts = None

    def wait(self, timeout: float | None = None) -> None:
        """Waits until all files are written. Raises TimedOutError after `timeout` seconds."""
        self._writer.wait(timeout)

    def makedirs(self, path: str | os.PathLike[str], exist_ok: bool = False) -> None:
        make_directory(path, exist_ok)

    def is_data_parallel_writer(self, dp_rank: int) -> Any:
        return self.inner.is_data_parallel_writer(dp_rank)

    def is_decoupled(self) -> bool:
        return True

    def cleanup(self) -> None:
        self.wait()

    def preserves_storage_sharing(self) -> Any:
        return self.inner.preserves_storage_sharing()


class _Files:
    """Replaces DeepSpeed's own checkpoint engine by ours, until `remove`."""

    def __init__(self, engine: Any, world: World) -> None:
        self._engine = engine
        self._ours: Any = None
        if engine.checkpoint_engine.is_decoupled():
            return  # it writes in the background already
        self._agree = Agreement(world)
        self._ours = CheckpointEngine(engine.checkpoint_engine, self._agree)
        self._save, self._load = engine.save_checkpoint, engine.load_checkpoint
        engine.checkpoint_engine = self._ours
        engine.save_checkpoint, engine.load_checkpoint = self._saved_aside, self._loaded_when_written

    def _saved_aside(self, *arguments: Any, **named: Any) -> Any:
        try:
            result = self._save(*arguments, **named)
        except BaseException:
            self._ours.abandon()
            raise
        self._ours.finish(self._engine.global_rank == 0)
        return result

    def _loaded_when_written(self, *arguments: Any, **named: Any) -> Any:
        self._ours.wait()  # or `latest` would be that of the checkpoint before
        return self._load(*arguments, **named)

    def remove(self) -> None:
        if self._ours is None:
            return
        ours, self._ours = self._ours, None
        ours.wait()
        self._engine.checkpoint_engine = ours.inner
        self._engine.save_checkpoint, self._engine.load_checkpoint = self._save, self._load
        self._agree.close()
