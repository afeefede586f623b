# SPDX-License-Identifier: Apache-2.0
"""Lightning: a callback that saves and restores, and a plugin for the files of `trainer.save_checkpoint`.

    trainer = Trainer(callbacks=[TierCheckpoint(config="tierckpt.json")], plugins=[TierCheckpointIO()])
    trainer.fit(model)

fit resumes from the newest version, in memory or on storage, or from `ckpt_path` if that is newer."""

import importlib
import logging
import os
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from .. import errors
from ..core.checkpoint import Checkpoint, attach
from ..runtime.settings import ConfigSource, Overrides, values_of, with_save_dir
from ..runtime.world import join_world
from ..state import walk_model
from ..state.blobs import Blob
from ..state.contents import Contents, Fence
from ..state.rng import Rng
from ..state.sharding import Placer
from .api_compat import RequiredApi, usable
from .background_writer import BackgroundWriter, copy_to_cpu, write_durably
from .reshard import load_any_layout
from .trained import OptimizerStates, Trained

# The same code comes as two packages. The program uses the classes of the one that it has imported.
_OLD_NAME = "pytorch_lightning" in sys.modules and "lightning.pytorch" not in sys.modules
_PYTORCH = "pytorch_lightning" if _OLD_NAME else "lightning.pytorch"
_FABRIC = "lightning_fabric" if _OLD_NAME else "lightning.fabric"
Callback: Any = importlib.import_module(f"{_PYTORCH}.callbacks").Callback
TorchCheckpointIO: Any = importlib.import_module(f"{_FABRIC}.plugins").TorchCheckpointIO

log = logging.getLogger("tierckpt")

_CONNECTOR = f"{_PYTORCH}.trainer.connectors.checkpoint_connector:_CheckpointConnector"
_FIT, _EPOCH = f"{_PYTORCH}.loops.fit_loop:_FitLoop", f"{_PYTORCH}.loops.training_epoch_loop:_TrainingEpochLoop"
REQUIRED_API = (
    RequiredApi(f"{_CONNECTOR}.dump_checkpoint", ("weights_only",)),
    RequiredApi(f"{_CONNECTOR}.restore_model", ("self",)),
    RequiredApi(f"{_CONNECTOR}.restore_datamodule", ("self",)),
    RequiredApi(f"{_CONNECTOR}.restore_callbacks", ("self",)),
    RequiredApi(f"{_CONNECTOR}.restore_precision_plugin_state", ("self",)),
    RequiredApi(f"{_CONNECTOR}.restore_loops", ("self",)),
    RequiredApi(f"{_CONNECTOR}.restore_lr_schedulers", ("self",)),
    RequiredApi(f"{_FIT}.setup_data", ("self",)),
    RequiredApi(f"{_FIT}._should_reload_train_dl"),
    RequiredApi(f"{_FIT}.is_resuming"),
    RequiredApi(f"{_EPOCH}.on_run_start", ("self", "data_fetcher")),
    RequiredApi(f"{_EPOCH}.on_advance_end", ("self", "data_fetcher")),
    RequiredApi(f"{_EPOCH}._should_accumulate"),
    RequiredApi(f"{_EPOCH}._num_ready_batches_reached"),
    RequiredApi(f"{_EPOCH}._is_training_done"),
    RequiredApi(f"{_EPOCH}.reset_restart_stage"),
    RequiredApi(f"{_PYTORCH}.loops.loop:_Loop.restarting"),
    RequiredApi(f"{_PYTORCH}.plugins.precision.precision:Precision._wrap_closure",
                ("self", "model", "optimizer", "closure")),
    RequiredApi(f"{_PYTORCH}.plugins.precision.precision:Precision._after_closure", ("self", "model", "optimizer")),
)

_STRATEGIES = ("SingleDeviceStrategy", "DDPStrategy")
_STATE_BYTES = 1 << 20
_NOT_OURS = ("state_dict", "optimizer_states")  # the tensors, which are records
_NOT_NEEDED = ("hyper_parameters", "hparams_name", "hparams_type", "datamodule_hyper_parameters",
               "datamodule_hparams_name", "datamodule_hparams_type")  # for load_from_checkpoint, in any type


class TierCheckpoint(Callback):
    """Restores when `fit` starts, saves after each step on which a save is due, and brings the last step to storage."""

    def __init__(self, config: ConfigSource = None, *, overrides: Overrides = None,
                 save_mem_interval: int | str | None = None, state_bytes: int = _STATE_BYTES) -> None:
        """config             path of a JSON file, or a dict with the same keys. If neither it nor overrides has
                           save_dir, that is <default_root_dir>/tierckpt
        overrides          dict of keys that override those of config
        save_mem_interval  overrides that key of the configuration
        state_bytes        bytes reserved for the states of loops, callbacks, schedulers, data module and data
        loaders"""
        self._config, self._overrides = config, dict(overrides or {})
        if save_mem_interval is not None:
            self._overrides["save_mem_interval"] = save_mem_interval
        self._state_bytes = state_bytes
        self._fit: _Fit | None = None

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The tierckpt.Checkpoint while fit runs, otherwise None."""
        return None if self._fit is None else self._fit.checkpoint

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        if stage != "fit" or trainer.fast_dev_run or not usable("tierckpt.lightning", "lightning", REQUIRED_API):
            return
        # The last one, so that what is saved of a step includes what the other callbacks do for it.
        trainer.callbacks = [one for one in trainer.callbacks if one is not self] + [self]
        self._fit = _Fit(trainer, self._settings(trainer), self._state_bytes)

    def _settings(self, trainer: Any) -> dict[str, Any]:
        return with_save_dir(values_of(self._config, self._overrides), trainer.default_root_dir, "tierckpt")

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None:
            self._fit.start()

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None:
            self._fit.train_start()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        if self._fit is not None:
            self._fit.train_end()

    def on_fit_end(self, trainer: Any, pl_module: Any) -> None:
        self._leave(job_done=True)

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self._leave(job_done=False)

    def _leave(self, job_done: bool) -> None:
        fit, self._fit = self._fit, None
        if fit is not None:
            fit.leave(job_done)


class _Fit:
    """One call of trainer.fit. A step is saved when everything that belongs to it has happened: optimizer, schedulers,
    callbacks and validation. The last step of an epoch is saved when the next epoch has begun."""

    def __init__(self, trainer: Any, settings: dict[str, Any], state_bytes: int) -> None:
        self._trainer, self._settings, self._state_bytes = trainer, settings, state_bytes
        self._loop, self._epoch = trainer.fit_loop, trainer.fit_loop.epoch_loop
        self.checkpoint: Any = None
        self._found: dict[str, Any] | None = None
        self._found_generators: Any = None
        self._last_step: int | None = None
        self._pending: int | None = None
        self._ended = False
        # Generators before the loaders were made, and before their iterators.
        self._data: dict[str, Any] = {"setup": _generators(), "iter": None}
        self._undo = [_replace(self._loop, "setup_data", self._setup_data),
                      _replace(self._epoch, "on_run_start", self._on_run_start),
                      _replace(self._epoch, "on_advance_end", self._on_advance_end),
                      _replace(trainer.precision_plugin, "_after_closure", self._after_closure)]
        self._files = trainer.strategy.checkpoint_io
        if isinstance(self._files, TierCheckpointIO):
            self._files.begin_training()

    # ---- attach and restore

    def start(self) -> None:
        trainer = self._trainer
        if type(trainer.strategy).__name__ not in _STRATEGIES:
            raise errors.UnsupportedError(
                "tierckpt.lightning does not know the strategy "
                f"{type(trainer.strategy).__name__}: it saves with {' and '.join(_STRATEGIES)} "
                "(strategy=\"auto\" or \"ddp\")")
        self._world = join_world()
        contents, fences = self._contents()
        self.checkpoint = attach(contents, world=self._world, config=self._settings, fences=fences)
        before = _generators()
        step = load_any_layout(self.checkpoint, contents, self._world, config=self._settings)
        own = trainer._checkpoint_connector._loaded_checkpoint
        if step is None:
            log.info("nothing to resume from: %s", "ckpt_path is loaded" if own else "a fresh start")
        elif own and own.get("global_step", 0) > step:
            log.warning("ckpt_path has step %d, the newest version of Tierckpt step %d: ckpt_path is loaded",
                        own["global_step"], step)
            self._found = None
            _put_back(before)
            trainer._checkpoint_connector.restore_model()
        else:
            self._restore(step)

    def _contents(self) -> tuple[Contents, list[Any]]:
        trainer, world = self._trainer, self._world
        model = walk_model.unwrap(trainer.strategy.model)
        self._refuse_foreign_weights(model.module)
        placer = Placer(world.rank, walk_model.plain_group(model, world.rank, world.size, None))
        trained = Trained([model], trainer.optimizers, placer)
        optimizers, generators = OptimizerStates(trained.states), trained.rng.blob(None)
        blobs = [*trained.module_blobs, optimizers.blob("optimizers"),
                 Blob("trainer", self._capture, self._keep, self._state_bytes),
                 replace(generators, apply=self._keep_generators)]
        self._put_back_generators = generators.apply
        contents = Contents(trained.records(), blobs, check=optimizers.check)
        return contents, [_before_step_without_closure(one) for one in trainer.optimizers]

    def _refuse_foreign_weights(self, module: torch.nn.Module) -> None:
        """A hook may add other weights to a checkpoint than those that are trained."""
        mine = {id(tensor) for tensor in [*module.parameters(), *module.buffers()]}
        mine |= {tensor.data_ptr() for tensor in [*module.parameters(), *module.buffers()]}
        for key, value in self._trainer._checkpoint_connector.dump_checkpoint(False)["state_dict"].items():
            if key.rpartition(".")[2] == "_extra_state":
                continue  # what get_extra_state() of a module returns
            if torch.is_tensor(value) and id(value) not in mine and value.data_ptr() not in mine:
                raise errors.UnsupportedError(
                    f"a hook on_save_checkpoint puts {key} into the checkpoint, which is no parameter or buffer of the "
                    "LightningModule (averaged weights?): make it one, e.g. an AveragedModel as a submodule")

    def _keep(self, value: dict[str, Any]) -> None:
        self._found = value

    def _keep_generators(self, value: Any) -> None:
        self._found_generators = value

    def _restore(self, step: int) -> None:
        """Restores as Lightning does from a file, from our state, which has the same parts except for the tensors."""
        trainer, connector, found = self._trainer, self._trainer._checkpoint_connector, self._found or {}
        self._last_step = step
        connector._loaded_checkpoint = {**found["checkpoint"], "state_dict": trainer.lightning_module.state_dict(),
                                        "optimizer_states": [one.state_dict() for one in trainer.optimizers]}
        trainer.lightning_module.on_load_checkpoint(connector._loaded_checkpoint)
        connector.restore_datamodule()
        connector.restore_callbacks()
        connector.restore_precision_plugin_state()
        connector.restore_loops()
        connector.restore_lr_schedulers()
        connector._loaded_checkpoint = {}
        self._loop._combined_loader = None  # exists already if the number of steps has been asked for
        if found["ended"]:
            self._forget_restart()
        warnings.filterwarnings("ignore", "You're resuming from a checkpoint that ended before the epoch ended")
        log.info("resuming after step %d (%s)", step, self.checkpoint.restored or "of another number of ranks")

    def _forget_restart(self) -> None:
        """From here on the loops behave as if there had been no restart."""
        self._loop._restarting = False  # its setter would ask whether the training is by steps
        self._epoch.restarting = False
        self._epoch.reset_restart_stage()

    # ---- data

    def _setup_data(self, original: Callable[..., Any]) -> None:
        if self._loop._combined_loader is None or self._loop._should_reload_train_dl:
            if self._found is not None:
                _put_back(self._found["data"]["setup"])
            self._data = {"setup": _generators(), "iter": None}
        original()

    def train_start(self) -> None:
        """A version that was saved at the end of a training continues with a new epoch."""
        if self._found is not None and self._found["ended"]:
            self._put_back_generators(self._found_generators)

    def _on_run_start(self, original: Callable[..., Any], data_fetcher: Any) -> None:
        """An epoch begins, or continues."""
        found, self._found = self._found, None
        if found is not None and not found["ended"]:
            self._go_on(found, original, data_fetcher)
            return
        resuming = self._loop.is_resuming or self._epoch.restarting
        if self._trainer.current_epoch > 0 and (found is not None or not resuming):
            self._data["iter"] = _generators()
            if resuming:
                iter(data_fetcher)  # as Lightning does itself where nothing is resumed
        original(data_fetcher)
        if self._pending is not None:
            self.checkpoint.save_checkpoint_if_needed(self._pending)
            self._pending = None

    def _go_on(self, found: dict[str, Any], original: Callable[..., Any], data_fetcher: Any) -> None:
        """Goes on after the last batch of this epoch that was trained, unless the loaders have gone there by
        themselves."""
        fetched = data_fetcher.fetched
        original(data_fetcher)
        resumable = [hasattr(one, "load_state_dict") for one in self._loop._combined_loader.flattened]
        if not all(resumable):
            if any(resumable):
                log.warning("some data loaders have a state and others do not: their batches may not match")
            data_fetcher.fetched = fetched
            if found["data"]["iter"] is not None:
                self._data["iter"] = found["data"]["iter"]
                _put_back(self._data["iter"])
                iter(data_fetcher)
            self._skip(data_fetcher, self._epoch.batch_progress.current.ready)
        self._forget_restart()
        self._put_back_generators(self._found_generators)

    def _skip(self, data_fetcher: Any, batches: int) -> None:
        for number in range(batches):
            try:
                next(data_fetcher)
            except StopIteration:
                raise errors.LayoutError(f"the data of this epoch has ended after {number} batches, and {batches} were "
                                         "trained when it was saved: start with the same data, or with a new job name"
                                         ) from None

    # ---- save

    def _capture(self) -> dict[str, Any]:
        checkpoint = self._trainer._checkpoint_connector.dump_checkpoint(False)
        kept = {key: value for key, value in checkpoint.items() if key not in (*_NOT_OURS, *_NOT_NEEDED)}
        return {"checkpoint": kept, "data": self._data, "ended": self._ended}

    def _after_closure(self, original: Callable[..., Any], model: Any, optimizer: Any) -> None:
        """Forward and backward pass are done, and the parameters are about to change."""
        if self.checkpoint is not None:
            self.checkpoint.fence()
        original(model, optimizer)

    def _on_advance_end(self, original: Callable[..., Any], data_fetcher: Any) -> None:
        original(data_fetcher)
        step = self._trainer.global_step
        if step == self._last_step or self._epoch._should_accumulate():
            return
        self._last_step = step
        if self._epoch._num_ready_batches_reached():
            self._pending = step
        elif self._epoch._is_training_done or self._trainer.should_stop:
            self.checkpoint.save_checkpoint(step)  # inside an epoch, while the loops still say so
        else:
            self.checkpoint.save_checkpoint_if_needed(step)

    def train_end(self) -> None:
        self._ended = self._pending is not None
        if self._trainer.global_step > 0:
            self.checkpoint.save_last(self._trainer.global_step)

    def leave(self, job_done: bool) -> None:
        while self._undo:
            self._undo.pop()()
        if isinstance(self._files, TierCheckpointIO):
            self._files.end_training()
        checkpoint, self.checkpoint = self.checkpoint, None
        if checkpoint is not None:
            checkpoint.close(job_done)


def _replace(target: Any, name: str, ours: Callable[..., Any]) -> Callable[[], None]:
    """Replaces a method of this one object by our function; returns a function that undoes this."""
    setattr(target, name, partial(ours, getattr(target, name)))
    return lambda: delattr(target, name)


def _before_step_without_closure(optimizer: Any) -> Fence:
    """The fence for steps that Lightning does not make. Its own steps have a closure with the forward and the backward
    pass in it. That may run while we copy, and we are called at its end."""
    def wait(fence: Callable[[], None], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        closure = args[0] if args else kwargs.get("closure")
        if getattr(getattr(closure, "func", None), "__name__", None) != "_wrap_closure":
            fence()

    return lambda fence: optimizer.register_step_pre_hook(lambda _, args, kwargs: wait(fence, args, kwargs)).remove


def _generators() -> dict[str, Any]:
    """The generators that data loaders draw from."""
    others: Any = Rng().blob(None).capture()
    return {"torch": torch.get_rng_state(), "others": {key: value for key, value in others.items() if key != "cuda"}}


def _put_back(value: dict[str, Any]) -> None:
    rng = Rng()
    rng._torch.copy_(value["torch"])
    rng.blob(None).apply(value["others"])


class TierCheckpointIO(TorchCheckpointIO):
    """Writes Lightning's own files, those of trainer.save_checkpoint and ModelCheckpoint. Each file gets its name only
    when it is complete and durable. While a fit with TierCheckpoint runs, a thread writes them."""

    def __init__(self) -> None:
        super().__init__()
        self._writer: BackgroundWriter | None = None

    def begin_training(self) -> None:
        self._writer = BackgroundWriter(lambda whole: whole)

    def end_training(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None and not writer.settle():
            log.error("not every file of a checkpoint was written: the lines before say which and why")

    def save_checkpoint(self, checkpoint: dict[str, Any], path: str | os.PathLike[str],
                        storage_options: Any = None) -> None:
        if "://" in str(path) or storage_options is not None:
            super().save_checkpoint(checkpoint, path, storage_options)
            return
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        if self._writer is None:
            write_durably(path, partial(torch.save, checkpoint))
        else:
            self._writer.write(path, partial(torch.save, copy_to_cpu(checkpoint)))

    def load_checkpoint(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Any:
        self._wait()
        return super().load_checkpoint(path, *args, **kwargs)

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        self._wait()
        super().remove_checkpoint(path)

    def teardown(self) -> None:
        self._wait()

    def _wait(self) -> None:
        if self._writer is not None:
            self._writer.wait()
