# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer.

    trainer = TrainerWrapper(Trainer(model=..., args=..., train_dataset=...), config="tierckpt.json")
    trainer.train(resume_from_checkpoint=True)

save_strategy, save_steps and save_total_limit set what goes to storage, save_mem_interval what is saved to memory."""

import dataclasses
import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback, TrainerState
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import get_last_checkpoint

from .. import errors
from ..core.checkpoint import attach
from ..runtime.native import job_name
from ..runtime.settings import (
    ConfigSource,
    Overrides,
    configuration,
    kept_on_storage,
    local_save_dir,
    values_of,
    with_save_dir,
)
from ..runtime.world import World, join_world
from ..state import jsonstate, twins, walk_model
from ..state.blobs import Blob
from ..state.contents import Contents, before_optimizer_step
from ..state.rng import Rng
from ..state.sharding import Placer
from ..state.walk_optimizer import state_key
from .api_compat import RequiredApi, usable
from .background_writer import sync_files
from .ddp import settle_ddp
from .framework_format import for_framework, is_framework
from .hf_copied import CopiedCheckpoints, weights_aside
from .hf_layout import OptimizerPlan, PlainCheckpoints, WrittenCheckpoints, building
from .reshard import load_any_layout
from .resume_dir import resume_directory
from .storage_wait import is_drained, wait_while_healthy
from .trained import STORAGE_TIMEOUT_S, Trained

log = logging.getLogger("tierckpt")

_TRAINER = "transformers:Trainer"
REQUIRED_API = (
    RequiredApi(f"{_TRAINER}.train", ("resume_from_checkpoint", "trial", "ignore_keys_for_eval")),
    RequiredApi(f"{_TRAINER}.set_initial_training_values", ("args", "dataloader")),
    RequiredApi(f"{_TRAINER}._init_training_state", (
        "max_steps", "num_update_steps_per_epoch", "num_train_epochs", "resume_from_checkpoint", "trial")),
    RequiredApi(f"{_TRAINER}._prepare_for_training", ("max_steps", "train_dataloader", "resume_from_checkpoint")),
    RequiredApi(f"{_TRAINER}._load_from_checkpoint", ("resume_from_checkpoint",)),
    RequiredApi(f"{_TRAINER}._load_optimizer_and_scheduler", ("checkpoint",)),
    RequiredApi(f"{_TRAINER}._load_scaler", ("checkpoint",)),
    RequiredApi(f"{_TRAINER}._load_rng_state", ("checkpoint",)),
    RequiredApi(f"{_TRAINER}._maybe_log_save_evaluate"),
    RequiredApi(f"{_TRAINER}._save_checkpoint", ("model", "trial")),
    RequiredApi(f"{_TRAINER}._save_rng_state", ("output_dir",)),
    RequiredApi(f"{_TRAINER}._save_scaler", ("output_dir",)),
    RequiredApi(f"{_TRAINER}._save", ("output_dir", "state_dict")),
    RequiredApi(f"{_TRAINER}._save_optimizer_and_scheduler", ("output_dir",)),
    RequiredApi(f"{_TRAINER}.save_model", ("output_dir", "_internal_call")),
    RequiredApi(f"{_TRAINER}.store_flos"),
    RequiredApi(f"{_TRAINER}._finalize_training"),
    RequiredApi("transformers:TrainerState.save_to_json", ("json_path",)),
    RequiredApi("transformers.trainer_callback:ExportableState"),
    RequiredApi("transformers.trainer_utils:get_last_checkpoint", ("folder",)),
    RequiredApi("transformers.integrations.deepspeed:deepspeed_load_checkpoint",
                ("deepspeed_engine", "checkpoint_path")),
)

_STATE_FILE = "trainer_state.json"
_BLOB_BYTES = 64 * 1024


class TrainerWrapper:
    """Wraps a Trainer. It behaves like that trainer, apart from train()."""

    def __init__(self, trainer: Any, config: ConfigSource = None, *, overrides: Overrides = None,
                 save_mem_interval: int | str | None = None, plain_checkpoints: bool = True,
                 history_bytes: int = 4 << 20) -> None:
        """config             path of a JSON file, or a dict with the same keys. If neither it nor overrides has
                           save_dir, that is <output_dir>/tierckpt
        overrides          dict of keys that override those of config
        save_mem_interval  overrides that key of the configuration
        plain_checkpoints  True: each step that goes to storage also becomes a checkpoint-<step> in output_dir, which a
                           plain Trainer can load. With storage_format framework, it becomes nothing else
        history_bytes      bytes reserved for state.log_history in a version

        Raises InvalidArgumentError for push_to_hub=True, and for storage_format framework without plain_checkpoints;
        UnsupportedError for FSDP."""
        if getattr(trainer.args, "push_to_hub", False):
            raise errors.InvalidArgumentError(
                "push_to_hub=True pushes each checkpoint when it is saved, and here it is "
                "written later: call trainer.push_to_hub() after train()")
        if getattr(trainer, "is_fsdp_enabled", False):
            raise errors.UnsupportedError(
                "the Trainer with FSDP is not supported: use DistributedDataParallel or DeepSpeed")
        settings = _settings(trainer.args, config, overrides, save_mem_interval)
        _refuse_format(trainer.args, settings, plain_checkpoints)
        adapter = None
        if usable("tierckpt.transformers", "transformers", REQUIRED_API):
            adapter = _Adapter(trainer, settings, plain_checkpoints, history_bytes)
        self.__dict__.update(_trainer=trainer, _adapter=adapter)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._trainer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._trainer, name, value)

    @property
    def checkpoint(self) -> Any:
        """The tierckpt.Checkpoint while train() runs, otherwise None."""
        return self._adapter and self._adapter.checkpoint

    def train(self, resume_from_checkpoint: str | bool | None = None, trial: Any = None,
              ignore_keys_for_eval: list[str] | None = None) -> Any:
        """As Trainer.train. With resume_from_checkpoint=True it resumes from the newest version, in memory or on
        storage, or from a newer checkpoint-<step> of a plain Trainer; if there is neither, it starts afresh."""
        if self._adapter is None or trial is not None:
            if resume_from_checkpoint is True and _last_checkpoint(self._trainer.args.output_dir) is None:
                resume_from_checkpoint = None
            return self._trainer.train(resume_from_checkpoint, trial, ignore_keys_for_eval)
        return self._adapter.train(resume_from_checkpoint, ignore_keys_for_eval)


def _settings(args: Any, config: ConfigSource, overrides: Overrides,
              save_mem_interval: int | str | None) -> dict[str, Any]:
    values = values_of(config, overrides)
    if save_mem_interval is not None:
        values["save_mem_interval"] = save_mem_interval
    if values.get("save_storage_interval", "off") not in ("off", 0):
        log.warning("save_storage_interval is not used: save_strategy and save_steps of the TrainingArguments say "
                    "what goes to storage")
    values["save_storage_interval"] = "off"
    values = with_save_dir(values, args.output_dir, "tierckpt")
    if args.save_total_limit:
        values["max_ckpt_num"] = args.save_total_limit
    return values


def _refuse_format(args: Any, settings: dict[str, Any], plain_checkpoints: bool) -> None:
    if not is_framework(settings):
        return
    if not plain_checkpoints:
        raise errors.InvalidArgumentError("with storage_format framework only checkpoint-<step> goes to storage: take "
                                          "out plain_checkpoints=False, or storage_format")
    if getattr(args, "save_on_each_node", False):
        raise errors.InvalidArgumentError("storage_format framework writes one checkpoint-<step> that all nodes see: "
                                          "take out save_on_each_node=True, or storage_format")


def _last_checkpoint(output_dir: str | os.PathLike[str]) -> str | None:
    return get_last_checkpoint(output_dir) if os.path.isdir(output_dir) else None


def _has_optimizer(directory: str) -> bool:
    """Whether the Trainer has saved all there. With save_only_model it has not, and then it resumes from there without
    an error, and leaves the optimizer as it is."""
    names = os.listdir(directory)
    return "scheduler.pt" in names and any("optimizer" in name for name in names)


class _EpochEnd(TrainerCallback):
    """Tells whether the Trainer has left its loop over an epoch. After it, the Trainer logs, evaluates and saves once
    more."""

    passed = False

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.passed = False

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.passed = True


class _OnTrainBegin(TrainerCallback):
    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._call()


class _Adapter:
    def __init__(self, trainer: Any, settings: dict[str, Any], plain_checkpoints: bool, history_bytes: int) -> None:
        self._trainer = trainer
        self._settings = settings
        self._plain_wanted = plain_checkpoints
        self._framework = is_framework(settings)
        self._history = _History(history_bytes)
        self._originals: dict[str, Callable[..., Any]] = {}
        self.checkpoint: Any = None

    # ---- train

    def train(self, resume: str | bool | None, ignore_keys_for_eval: list[str] | None) -> Any:
        self._epoch = _EpochEnd()
        self._begin = _OnTrainBegin(self._carry_on)
        self._plain: Any = None
        self._files: Any = None
        self._written: Any = None
        self._copied: Any = None
        self._all_on_storage = True
        self._dataloader: Any = None
        self._found: Any = None
        self._elsewhere: str | None = None
        self._last_saved: int | None = None
        self._storage_due = self._inside = False
        self._storage_steps: set[int] = set()
        with ExitStack() as stack:
            stack.enter_context(self._rebound())
            # The Trainer wants a directory to resume from. What is in it is written when it is known.
            self._stub = stack.enter_context(resume_directory())
            TrainerState().save_to_json(os.path.join(self._stub, _STATE_FILE))
            stack.push(self._leave)
            return self._trainer.train(self._stub if resume is True else resume,
                                       ignore_keys_for_eval=ignore_keys_for_eval)

    @contextmanager
    def _rebound(self) -> Iterator[None]:
        """Our functions in the place of the Trainer's, on this one object and for this one training."""
        ours = {name: getattr(self, name) for name in (
            "set_initial_training_values", "_init_training_state", "_prepare_for_training", "_load_from_checkpoint",
            "_load_rng_state", "_maybe_log_save_evaluate", "_save_checkpoint", "_finalize_training")}
        before = {name: vars(self._trainer)[name] for name in ours if name in vars(self._trainer)}
        self._originals = {name: getattr(self._trainer, name) for name in ours}
        vars(self._trainer).update(ours)
        callbacks = (self._epoch, self._begin)
        for callback in callbacks:
            self._trainer.add_callback(callback)
        try:
            yield
        finally:
            for callback in callbacks:
                self._trainer.remove_callback(callback)
            for name in ours:
                delattr(self._trainer, name)
            vars(self._trainer).update(before)

    def _leave(self, kind: type[BaseException] | None, _error: BaseException | None,
               _traceback: TracebackType | None) -> None:
        plain, self._plain = self._plain, None
        copied, self._copied = self._copied, None
        try:
            if plain is not None:
                plain.close(to_the_end=kind is None)
            if copied is not None:
                copied.close()
        finally:
            self._close(job_done=kind is None and self._all_on_storage)

    def _close(self, job_done: bool) -> None:
        checkpoint, self.checkpoint = self.checkpoint, None
        if checkpoint is not None:
            checkpoint.close(job_done)

    # ---- attach and resume

    def set_initial_training_values(self, args: Any, dataloader: Any) -> Any:
        self._dataloader = dataloader
        return self._originals["set_initial_training_values"](args, dataloader)

    def _init_training_state(self, max_steps: Any, num_update_steps_per_epoch: Any, num_train_epochs: Any,
                             resume_from_checkpoint: str | bool | None, trial: Any) -> Any:
        """The Trainer asks here where to resume, before it has wrapped model and optimizer, which we need to load
        anything. So they are prepared now, and passed to the Trainer when it prepares them itself."""
        stub = resume_from_checkpoint == self._stub
        self._prepared = self._originals["_prepare_for_training"](
            max_steps, self._dataloader, None if stub else resume_from_checkpoint)
        self._attach()
        self._open_plain()
        resume = self._load() if stub else resume_from_checkpoint
        places = self._originals["_init_training_state"](
            max_steps, num_update_steps_per_epoch, num_train_epochs, resume, trial)
        if self._plain is not None:
            self._plain.start(self._trainer.state.best_model_checkpoint)
        return places

    def _prepare_for_training(self, max_steps: Any, train_dataloader: Any,
                              resume_from_checkpoint: str | bool | None) -> Any:
        return self._prepared

    def _attach(self) -> None:
        self._leave(RuntimeError, None, None)  # of a try with a batch that was too large
        self._files = self._written = None
        self._world = join_world()
        room = _BLOB_BYTES + (self._history.capacity if self._world.rank == 0 else 0)
        # What rank 0 has beside the others is used on rank 0 alone.
        own = Blob("trainer", self._capture, self._keep, room, reshard="any")
        if self._trainer.is_deepspeed_enabled:
            self.checkpoint = _attach_deepspeed(self._trainer, own, self._settings)
            self._load_newest = self.checkpoint.load_checkpoint
            return
        self._settle()
        contents, fences = _contents(self._trainer, self._world, own)
        contents = for_framework(contents, self._settings)
        self.checkpoint = attach(contents, world=self._world, config=self._settings, fences=fences)
        self._load_newest = partial(load_any_layout, self.checkpoint, contents, self._world, config=self._settings)

    def _settle(self) -> None:
        """See settle_ddp. With two ranks the order does not matter."""
        model = self._prepared[0]
        if not isinstance(model, DistributedDataParallel) or model.find_unused_parameters or self._world.size < 3:
            return
        trainer, loader = self._trainer, self._dataloader
        try:
            batch = loader.collate_fn([loader.dataset[i] for i in range(trainer.args.per_device_train_batch_size)])
        except (TypeError, NotImplementedError, AttributeError):
            log.warning("a data set without index: a resumed training may differ in the last bits (tierckpt.torch."
                        "settle_ddp says why)")
            return
        trainer.current_gradient_accumulation_steps = 1
        samples, count = trainer.get_batch_samples(iter([batch]), 1, trainer.args.device)
        settle_ddp(model, lambda: trainer.training_step(model, samples[0], count))

    def _load(self) -> str | None:
        """Loads what is newest. Returns the directory that the Trainer is to resume from: our stub with the state that
        was saved, a checkpoint-<step> of its own, or None."""
        step, why = None, None
        try:
            step = self._load_newest()
        except (errors.LayoutError, errors.UnrecoverableError, errors.CorruptError) as error:
            why = error
        own = self._world.gather(_last_checkpoint(self._trainer.args.output_dir))[0]
        if own is not None and int(own.rpartition("-")[2]) > (step or 0) and not self._would_stay_torn(own):
            level = logging.INFO if self._framework and why is None else logging.WARNING
            log.log(level, "resuming from %s, the newest that can be loaded (Tierckpt: %s)", own, why or f"step {step}")
            return self._load_own(own)
        if why is not None:
            raise why
        if step is None:
            log.info("nothing to resume from: a fresh start")
            return None
        self._put_back_generators = _generators_as_now()
        state = self._world.gather(self._found.get("state"))[0]
        Path(self._stub, _STATE_FILE).write_text(json.dumps(state))
        log.info("resuming from step %d (%s)", step, self.checkpoint.restored or "of another number of ranks")
        return self._stub

    def _would_stay_torn(self, directory: str) -> bool:
        """Whether a load has failed while it copied, and this directory of the Trainer, from which it would load the
        model alone, would leave the optimizer with parts of several states. Collective then."""
        return self.checkpoint.health().records_torn and not all(self._world.gather(
            self._trainer.is_deepspeed_enabled or _has_optimizer(directory)))

    def _load_own(self, directory: str) -> str:
        self._elsewhere, self._found = directory, None
        if self._trainer.is_deepspeed_enabled:
            from transformers.integrations.deepspeed import deepspeed_load_checkpoint

            deepspeed_load_checkpoint(self._trainer.model_wrapped, directory)
        else:
            self._originals["_load_from_checkpoint"](directory)
        self._trainer._load_optimizer_and_scheduler(directory)
        self._trainer._load_scaler(directory)
        self.checkpoint.filled_elsewhere()
        return directory

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        if resume_from_checkpoint != self._stub:
            self._originals["_load_from_checkpoint"](resume_from_checkpoint, model)

    def _load_rng_state(self, checkpoint: str) -> None:
        """The Trainer calls this when it has skipped the batches that were trained. It has drawn numbers by then."""
        if checkpoint != self._stub or self._elsewhere is not None:
            self._originals["_load_rng_state"](self._elsewhere or checkpoint)
        elif self._found is not None:
            self._put_back_generators()

    def _carry_on(self) -> None:
        """on_train_begin: the Trainer has just set these to their first values."""
        if self._found is None:
            return
        trainer, carried = self._trainer, self._found["carried"]
        trainer._tr_loss += carried["tr_loss"]
        trainer._globalstep_last_logged = carried["globalstep_last_logged"]
        trainer.current_flos = carried["current_flos"]
        # train_loss at the end is of the steps of this call, so without what was carried over.
        trainer._total_loss_scalar -= sum(self._world.gather(carried["tr_loss"])) / self._world.size

    # ---- what is saved

    def _capture(self) -> dict[str, Any]:
        trainer = self._trainer
        # Before the first step there is no loss yet.
        loss = getattr(trainer, "_tr_loss", None)
        value: dict[str, Any] = {"carried": {
            "tr_loss": 0.0 if loss is None else float(loss),
            "globalstep_last_logged": getattr(trainer, "_globalstep_last_logged", 0),
            "current_flos": trainer.current_flos,
        }}
        if self._world.rank == 0:
            state = _state_now(trainer)
            value["history"] = self._history.text(state.pop("log_history"))
            value["state"] = state
        return value

    def _keep(self, value: dict[str, Any]) -> None:
        if "state" in value:
            value["state"]["log_history"] = self._history.entries(value.pop("history"))
        self._found = value

    # ---- save

    def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> None:
        self._inside = True
        try:
            self._originals["_maybe_log_save_evaluate"](*args, **kwargs)
        finally:
            self._inside = False
        state, control = self._trainer.state, self._trainer.control
        ends = state.epoch == int(state.epoch) or control.should_epoch_stop or control.should_training_stop
        if not ends or self._epoch.passed:
            self._save()
        # else it comes once more at once, for the end of the epoch, and what happens there belongs to this step

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """What the Trainer does when control.should_save is set; right after it the callbacks' on_save."""
        step, state = self._trainer.state.global_step, self._trainer.state
        target = os.path.join(self._trainer.args.output_dir, f"checkpoint-{step}")
        if os.path.isdir(target) and not os.path.exists(os.path.join(target, _STATE_FILE)):
            # enable_jit_checkpoint makes the directory before, and ends the process soon after.
            self._originals["_save_checkpoint"](model, trial)
        self._storage_steps.add(step)
        if state.best_global_step:
            best = os.path.join(self._trainer.args.output_dir, f"checkpoint-{state.best_global_step}")
            if os.path.isdir(best) or state.best_global_step in self._storage_steps:
                state.best_model_checkpoint = best
        self._storage_due = True
        if not self._inside:
            self._save()

    def _save(self) -> None:
        step, due, self._storage_due = self._trainer.state.global_step, self._storage_due, False
        if step == self._last_saved:
            return
        if not due:
            if self.checkpoint.save_checkpoint_if_needed(step):
                self._last_saved = step
            return
        self._last_saved = step
        self._wait_for_room()
        if self._files is not None:
            self._write_files(step)
        elif self._copied is not None:
            self._write_copies(step)
        elif self._plain_wanted and not self._trainer.is_deepspeed_enabled:
            self._write_small(step)
        self.checkpoint.save_checkpoint(step, to_storage=not self._framework)
        if self._plain is not None:
            self._plain.saved(step)

    # ---- for the plain Trainer

    def _open_plain(self) -> None:
        if not self._plain_wanted:
            return
        trainer = self._trainer
        if trainer.is_deepspeed_enabled:
            self._open_files()
        elif self._framework:
            self._open_written()
            self._copied = CopiedCheckpoints(trainer, self._world, self._written)
        elif self._world.rank == 0:
            job = job_name(**configuration(self._settings, None))
            save_dir = local_save_dir(self._settings["save_dir"],
                                      "checkpoints for the plain Trainer share files with it")
            versions = Path(save_dir, job)
            self._plain = PlainCheckpoints(
                trainer.args.output_dir, versions, trainer.args.save_total_limit or 0, _model_keys(trainer.model),
                lambda directory, state_dict: trainer._save(str(directory), state_dict=state_dict))
            self._plain.finish_left()
        self._world.gather(None)  # what was left is whole on all ranks

    def _open_files(self) -> None:
        from . import deepspeed

        files = self._trainer.model_wrapped.checkpoint_engine
        if not isinstance(files, deepspeed.CheckpointEngine):
            log.warning("no checkpoint-<step>: DeepSpeed's files are not written by tierckpt.deepspeed")
            return
        self._files = files
        self._open_written()

    def _open_written(self) -> None:
        """With storage_format framework there is nothing else on storage, so max_ckpt_num counts these directories."""
        args = self._trainer.args
        if self._world.rank != 0:
            return
        if self._framework and not args.save_total_limit:
            self._written = WrittenCheckpoints(args.output_dir, kept_on_storage(self._settings, None), "max_ckpt_num")
        else:
            self._written = WrittenCheckpoints(args.output_dir, args.save_total_limit or 0)
        self._written.finish_left()

    def _write_files(self, step: int) -> None:
        """As the Trainer does it, but in the background. DeepSpeed's files come first: they wait for writes under
        way."""
        trainer = self._trainer
        trainer.store_flos()
        directory = self._begin_files(step)
        with self._files.together(directory.name, partial(sync_files, directory),
                                  partial(self._complete, step)) as writer:
            if not trainer.args.save_only_model:
                trainer._save_optimizer_and_scheduler(str(directory))
                trainer._save_scaler(str(directory))
                trainer._save_rng_state(str(directory))
            with weights_aside(trainer, writer):
                trainer.save_model(str(directory), _internal_call=True)
            if self._world.rank == 0:
                TrainerState(**_state_now(trainer)).save_to_json(str(directory / _STATE_FILE))

    def _write_copies(self, step: int) -> None:
        trainer = self._trainer
        trainer.store_flos()
        if self._written is not None:
            self._written.protect(trainer.state.best_model_checkpoint)
        self._copied.write(step, TrainerState(**_state_now(trainer)).save_to_json)

    def _begin_files(self, step: int) -> Path:
        self._files.wait()
        if self._written is not None:
            self._written.protect(self._trainer.state.best_model_checkpoint)
            self._written.delete_unfinished()
            building(self._trainer.args.output_dir, step)
        self._world.gather(None)
        return building(self._trainer.args.output_dir, step)

    def _complete(self, step: int) -> None:
        if self._written is not None:
            self._written.complete(step)

    def _write_small(self, step: int) -> None:
        trainer = self._trainer
        if self._plain is not None:
            self._plain.begin(step)
        directory = building(trainer.args.output_dir, step)
        if not trainer.args.save_only_model:
            trainer._save_rng_state(str(directory))
            trainer._save_scaler(str(directory))
        if self._world.rank != 0:
            return
        if not trainer.args.save_only_model:
            torch.save(trainer.lr_scheduler.state_dict(), directory / "scheduler.pt")
            _optimizer_plan(trainer).write(directory)
        TrainerState(**_state_now(trainer)).save_to_json(str(directory / _STATE_FILE))

    def _wait_for_room(self) -> None:
        """No more at a time than there are versions on storage: one that is deleted cannot be made into anything."""
        limit = self._trainer.args.save_total_limit or int(self._settings.get("max_ckpt_num", 3))
        if self._plain is None or limit == 0:
            return
        self._plain.protect(self._trainer.state.best_model_checkpoint)
        while len(self._plain.waiting()) >= limit:
            self._finish(self._plain.waiting()[0], STORAGE_TIMEOUT_S)

    def _finish(self, step: int, timeout: float) -> None:
        """Waits while storage works. If it does not, training continues at once, and this step gets no directory."""
        try:
            wait_while_healthy(self.checkpoint, is_drained(self.checkpoint, step), timeout)
            wait_while_healthy(self.checkpoint, partial(self._plain.wait_for, step), timeout)
        except errors.Error as error:
            log.warning("there will be no checkpoint-%d: %s", step, error)
            self._plain.give_up(step)

    def _finalize_training(self, trial: Any, num_train_samples: Any, start_time: Any) -> Any:
        self.checkpoint.fence()
        self._wait_for_storage()
        args, limit = self._trainer.args, self._trainer.args.save_total_limit
        # With a limit of 1 it would delete directories here by itself, including those that are not ours.
        args.save_total_limit = None if limit == 1 else limit
        try:
            return self._originals["_finalize_training"](trial, num_train_samples, start_time)
        finally:
            args.save_total_limit = limit
            directories = self._plain or self._written
            if directories is not None and limit == 1 and self._trainer.state.best_model_checkpoint is not None:
                directories.keep_only_protected()

    def _wait_for_storage(self) -> None:
        """Waits until all that was saved to storage exists there in all its forms."""
        state = self._trainer.state
        if self._plain is not None:
            self._plain.protect(state.best_model_checkpoint)
            for step in self._plain.waiting():
                self._finish(step, STORAGE_TIMEOUT_S)
        elif self._storage_steps and not self._framework:
            self._drained(max(self._storage_steps))
        for written in (self._files, self._copied):
            if written is not None:
                written.wait()
        self._all_on_storage = not self._framework or self._last_is_there()
        if self._written is not None:
            self._written.protect(state.best_model_checkpoint)
        best = state.best_model_checkpoint
        there = self._world.gather(best is None or os.path.isdir(best))
        if not there[0]:
            log.warning("the best checkpoint %s could not be made: it is not loaded", best)
            state.best_model_checkpoint = None

    def _last_is_there(self) -> bool:
        """Whether the last step for storage is there. Collective."""
        path = os.path.join(self._trainer.args.output_dir, f"checkpoint-{max(self._storage_steps, default=0)}")
        there: bool = self._world.gather(not self._storage_steps or os.path.isdir(path))[0]
        if not there:
            log.warning("%s was not written (see the log), so the agents keep their memory for linger_s: start the job "
                        "again to continue from it", path)
        return there

    def _drained(self, step: int) -> None:
        try:
            wait_while_healthy(self.checkpoint, is_drained(self.checkpoint, step), STORAGE_TIMEOUT_S)
        except errors.Error as error:
            log.warning("step %d is not on storage: %s", step, error)


def _generators_as_now() -> Callable[[], object]:
    """A function that puts the random number generators back to where they are now."""
    rng = Rng().blob(None)
    return partial(rng.apply, rng.capture())


class _History:
    """state.log_history as text. It grows all the time and is saved often, so entries that were encoded once are
    kept."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._lines: list[str] = []
        self._bytes = 0
        self._last: dict[str, Any] | None = None

    def text(self, entries: list[dict[str, Any]]) -> str:
        known = len(self._lines)
        if known > len(entries) or (known > 0 and entries[known - 1] is not self._last):
            self._lines, self._bytes, known = [], 0, 0
        for entry in entries[known:]:
            line = jsonstate.dumps("log_history", entry).decode()
            self._lines.append(line)
            self._bytes += _size_in_blob(line)
            self._last = entry
        return "\n".join(self._lines if self._bytes <= self.capacity else self._newest())

    def _newest(self) -> list[str]:
        room, first = self.capacity, len(self._lines)
        while room >= _size_in_blob(self._lines[first - 1]):
            first -= 1
            room -= _size_in_blob(self._lines[first])
        _say_history_is_cut(self.capacity)
        return self._lines[first:]

    @staticmethod
    def entries(text: str) -> list[dict[str, Any]]:
        return [jsonstate.loads(line.encode()) for line in text.split("\n") if line]


def _size_in_blob(line: str) -> int:
    return len(json.dumps(line))  # with two quotes, in whose place the end of the line comes


@cache
def _say_history_is_cut(capacity: int) -> None:
    log.warning("state.log_history has outgrown %d bytes: only its newest entries are saved (TrainerWrapper("
                "history_bytes=))", capacity)


class _ClientState:
    """A blob as the adapter of DeepSpeed takes it, with the schedule if the engine does not have it itself."""

    def __init__(self, trainer: Any, own: Blob) -> None:
        self._own = own
        scheduler = trainer.lr_scheduler
        of_engine = getattr(scheduler, "scheduler", scheduler) is trainer.model_wrapped.lr_scheduler
        self._scheduler = None if of_engine else scheduler

    def state_dict(self) -> dict[str, Any]:
        return {"trainer": self._own.capture(),
                "scheduler": None if self._scheduler is None else self._scheduler.state_dict()}

    def load_state_dict(self, value: dict[str, Any]) -> None:
        self._own.apply(value["trainer"])
        if self._scheduler is not None:
            self._scheduler.load_state_dict(value["scheduler"])


def _attach_deepspeed(trainer: Any, own: Blob, settings: dict[str, Any]) -> Any:
    from . import deepspeed

    return deepspeed.attach(trainer.model_wrapped, config=settings, client_state=_ClientState(trainer, own),
                            capacity={"client_state": (own.capacity or 0) + _BLOB_BYTES})


def _contents(trainer: Any, world: World, own: Blob) -> tuple[Contents, list[Any]]:
    """Everything that the Trainer trains, and the fences before anything changes it."""
    model = walk_model.unwrap(trainer.model_wrapped)
    placer = Placer(world.rank, walk_model.plain_group(model, world.rank, world.size, None))
    optimizer = trainer.optimizer.optimizer  # without what Accelerate puts around it
    trained = Trained([model], [optimizer], placer)
    state, records = trained.states[0], trained.records()
    twins.confirm(records, world)
    scheduler, scaler = trainer.lr_scheduler, trainer.accelerator.scaler
    blobs = [*trained.module_blobs,
             Blob("optimizer", state.capture, state.apply, state.room(), reshard="any", fits=state.fits,
                  structural=True),
             Blob("scheduler", scheduler.state_dict, scheduler.load_state_dict, reshard="any")]
    if scaler is not None:
        blobs.append(Blob("scaler", scaler.state_dict, scaler.load_state_dict, reshard="any"))
    blobs += [own, trained.rng.blob(None)]
    return Contents(records, blobs, check=state.check), [before_optimizer_step(optimizer)]


def _state_now(trainer: Any) -> dict[str, Any]:
    """The members of trainer.state, with the present states of the callbacks and the control."""
    value = {field.name: getattr(trainer.state, field.name) for field in dataclasses.fields(trainer.state)}
    exportable = [one for one in trainer.callback_handler.callbacks + [trainer.control]
                  if isinstance(one, ExportableState)]
    value["stateful_callbacks"] = TrainerState(stateful_callbacks=exportable).stateful_callbacks
    return value


def _model_keys(model: torch.nn.Module) -> dict[str, str]:
    """By the names of model.state_dict(). A tied parameter has several, but is saved under one."""
    bare = walk_model.unwrap(model).module
    keys = {id(parameter): name for name, parameter in walk_model.named_parameters(bare).items()}
    keys |= {id(owner._buffers[own_name]): name for name, owner, own_name in walk_model.saved_buffers(bare)}
    return {name: keys[id(tensor)] for name, tensor in bare.state_dict(keep_vars=True).items() if id(tensor) in keys}


def _optimizer_plan(trainer: Any) -> OptimizerPlan:
    optimizer = trainer.optimizer.optimizer
    names = {id(parameter): name for name, parameter in
             walk_model.named_parameters(walk_model.unwrap(trainer.model).module).items()}
    packed = optimizer.state_dict()
    numbers = [number for group in packed["param_groups"] for number in group["params"]]
    params = [param for group in optimizer.param_groups for param in group["params"]]
    keys: dict[int, dict[str, str]] = {}
    values: dict[int, dict[str, Any]] = {}
    for number, param in zip(numbers, params, strict=True):
        for key, value in packed["state"].get(number, {}).items():
            if torch.is_tensor(value):
                keys.setdefault(number, {})[key] = state_key(names[id(param)], key)
            else:
                values.setdefault(number, {})[key] = value
    return OptimizerPlan(packed["param_groups"], keys, values)
