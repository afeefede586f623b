# SPDX-License-Identifier: Apache-2.0
"""The checkpoint manager of torchtitan as it was when training programs built it with a job_config:
docs/frameworks/torchtitan-lines.md. It needs no torchtitan."""

import hashlib
import logging
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.stateful import Stateful

from .. import errors
from ..runtime.settings import ConfigSource, values_of, with_save_dir
from ..runtime.world import join_world
from . import dcp_directory
from .stateful import ModelWrapper, OptimizerWrapper
from .torchtitan_job import ASYNC_MODES, TitanJob
from .torchtitan_state import DATALOADER, MODEL, OPTIMIZER

log = logging.getLogger("tierckpt")

_KEYS = ("enable_checkpoint", "folder", "interval_type", "interval", "model_weights_only", "export_dtype", "async_mode",
         "keep_latest_k")
_OF_THE_PROGRAM = ("load_step", "create_seed_checkpoint")  # the training program itself acts on these
_DTYPES = {"float16": torch.float16, "float32": torch.float32, "bfloat16": torch.bfloat16}
_STEP = re.compile(r"step-(\d+)")


@dataclass
class TrainState:
    """The counters of a training, and its losses so far."""

    step: int = 0
    global_avg_losses: list[float] = field(default_factory=list)
    global_max_losses: list[float] = field(default_factory=list)
    log_steps: list[int] = field(default_factory=list)

    def state_dict(self) -> dict[str, Any]:
        return {"step": torch.tensor(self.step, dtype=torch.int32),
                **{name: _bytes_of(getattr(self, name)) for name in self._lists()}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.step = int(state_dict["step"])
        for name in self._lists():
            state_dict[name].seek(0)
            setattr(self, name, torch.load(state_dict[name], weights_only=True))

    @staticmethod
    def _lists() -> tuple[str, ...]:
        return "global_avg_losses", "global_max_losses", "log_steps"


def _bytes_of(value: list[Any]) -> BytesIO:
    buffer = BytesIO()
    torch.save(value, buffer)
    return buffer


class CheckpointManager:
    """Arguments, keys and methods are those of torchtitan. `config` names further keys of Tierckpt's configuration;
    default: the file that $TIERCKPT_CONFIG names."""

    def __init__(self, dataloader: Any, model_parts: list[nn.Module], optimizers: list[torch.optim.Optimizer],
                 lr_schedulers: list[Any], states: dict[str, Any], job_config: Any, *,
                 config: ConfigSource = None) -> None:
        keys = job_config.checkpoint
        self.enable_checkpoint = bool(_value(keys, "enable_checkpoint"))
        self._job: TitanJob | None = None
        if not self.enable_checkpoint:
            return
        _check(keys)
        _one_of_each(model_parts, optimizers, lr_schedulers)
        self.folder = os.path.join(job_config.job.dump_folder, keys.folder)
        self.interval = int(keys.interval)
        self.keep_latest_k = int(keys.keep_latest_k)
        self.model_weights_only = bool(keys.model_weights_only)
        self.export_dtype = _DTYPES[keys.export_dtype]
        self._by_steps = keys.interval_type == "steps"
        self.states = states
        self.states.update(_states(dataloader, model_parts, optimizers, lr_schedulers))
        _check_states(self.states)
        config = os.environ.get("TIERCKPT_CONFIG") if config is None else config
        settings = self._settings(config, job_config.job.dump_folder)
        self._job = TitanJob(model_parts, optimizers, self.states, settings, keys.async_mode.lower(),
                             folder=self.folder, stock_states=self._stock_states)

    def _stock_states(self, with_models: bool) -> dict[str, Any]:
        return {key: state for key, state in self.states.items() if with_models or key != MODEL}

    def _settings(self, config: ConfigSource, dump_folder: str) -> dict[str, Any]:
        values = values_of(config, None)
        for key, keys in (("save_storage_interval", "interval_type and interval"), ("max_ckpt_num", "keep_latest_k")):
            if key in values:
                raise errors.ConfigError(f"{key} is set by {keys} of job_config.checkpoint: take it out of Tierckpt's "
                                         "configuration")
        name = hashlib.blake2b(os.path.abspath(self.folder).encode(), digest_size=6).hexdigest()
        return {"job": f"torchtitan-{name}", **with_save_dir(values, dump_folder, "tierckpt"),
                "save_storage_interval": "off" if self._by_steps else f"{self.interval}s",
                "max_ckpt_num": self.keep_latest_k}

    def reset(self) -> None:
        """Call it right before training, on all ranks: an interval in seconds counts from the first load, or from
        here."""
        if self._job is not None:
            self._job.attach()

    # ---- save

    def save(self, curr_step: int, force: bool = False) -> None:
        """Call it after every step. force=True is for the last step, and for a seed checkpoint (step 0)."""
        if self._job is None:
            return
        self._job.look()
        due = self._by_steps and curr_step % self.interval == 0
        if curr_step == 0:
            if due or force:
                self._save_as_torch(self.states, 0)
        elif force and self.model_weights_only:
            self._job.fence()
            self._save_weights(curr_step)
        elif force:
            self._job.attach().save_last(curr_step)
            self._job.settle()
        elif due:
            self._job.save_to_storage(curr_step)
        else:
            self._job.save_if_needed(curr_step)

    def _save_weights(self, step: int) -> None:
        weights = self.states[MODEL].state_dict()
        weights.pop("freqs_cis", None)  # Llama's table of rotations, which its model computes
        if self.export_dtype != torch.float32:  # as in torchtitan: float32 leaves everything as the model has it
            weights = {key: value.to(self.export_dtype) for key, value in weights.items()}
        log.info("step %d: the weights alone are saved, export_dtype %s", step, self.export_dtype)
        self._save_as_torch(weights, step)

    def _save_as_torch(self, state_dict: dict[str, Any], step: int) -> None:
        state_dict_saver.save(state_dict, checkpoint_id=self._path(step), no_dist=not dist.is_initialized())

    def _path(self, step: int) -> str:
        return os.path.join(self.folder, f"step-{step}")

    def maybe_wait_for_staging(self) -> None:
        """Call it before each step of the optimizers, which otherwise do it themselves."""
        if self._job is not None:
            self._job.fence()

    # ---- load

    def load(self, step: int = -1) -> bool:
        """Loads a step, or the newest: from memory or storage, or a checkpoint of torch in the same folder if that is
        the newer one. Returns whether there is one. Raises UnrecoverableError for a step that is not among those that
        are there. Collective."""
        if self._job is None:
            return False
        asked = None if step == -1 else step
        of_torch = self._newest_of_torch(asked)
        if of_torch is None or asked is None:
            loaded = None if step == 0 else self._job.load(asked)
            if of_torch is None or (loaded is not None and loaded >= of_torch):
                return loaded is not None
        # A seed checkpoint is for a fresh start.
        states = {MODEL: self.states[MODEL]} if of_torch == 0 else self.states
        log.info("loading step %d, which torch has written", of_torch)
        state_dict_loader.load(states, checkpoint_id=self._path(of_torch), no_dist=not dist.is_initialized())
        if of_torch != 0:
            self._job.filled_elsewhere()
        return True

    def _newest_of_torch(self, step: int | None) -> int | None:
        """The newest checkpoint of torch that a training can go on from, or the one of a step. As rank 0 sees it."""
        world = join_world()
        return world.gather(world.agreed(lambda: self._look(step) if world.rank == 0 else None))[0]

    def _look(self, step: int | None) -> int | None:
        for found in sorted(_steps_in(self.folder), reverse=True) if step is None else [step]:
            path = self._path(found)
            if not dcp_directory.is_of_torch(path):
                continue
            keys = FileSystemReader(path).read_metadata().state_dict_metadata
            if any(key.startswith(f"{OPTIMIZER}.") for key in keys) or found == 0:
                return found
            if step is not None:
                raise errors.LayoutError(f"{path} has the weights alone (model_weights_only), so no training can go on "
                                         "from it: load another step, or load the weights with "
                                         "torch.distributed.checkpoint")
        return None

    # ---- end

    def close(self, job_done: bool = True) -> None:
        """Not required. Frees memory at once; without it, memory is kept for linger_s after the end of the program."""
        if self._job is not None:
            self._job.close(job_done)


def _steps_in(folder: str) -> Iterable[int]:
    try:
        names = [path.name for path in Path(folder).iterdir()]
    except FileNotFoundError:
        return []
    return [int(match[1]) for match in map(_STEP.fullmatch, names) if match]


def _states(dataloader: Any, model_parts: list[nn.Module], optimizers: list[torch.optim.Optimizer],
            lr_schedulers: list[Any]) -> dict[str, Any]:
    states = {MODEL: ModelWrapper(model_parts), OPTIMIZER: OptimizerWrapper(model_parts, optimizers),
              DATALOADER: dataloader}
    if len(lr_schedulers) == 1:
        return {**states, "lr_scheduler": lr_schedulers[0]}
    return {**states, **{f"lr_scheduler_{i}": scheduler for i, scheduler in enumerate(lr_schedulers)}}


def _check_states(states: dict[str, Any]) -> None:
    for key, state in states.items():
        if state is not None and not isinstance(state, Stateful):
            raise errors.InvalidArgumentError(f"{key} is a {type(state).__name__} without state_dict() and "
                                              "load_state_dict(), so it cannot be restored: give it both")


def _one_of_each(model_parts: list[Any], optimizers: list[Any], lr_schedulers: list[Any]) -> None:
    for what, of_parts in (("optimizers", optimizers), ("lr_schedulers", lr_schedulers)):
        if len(of_parts) != len(model_parts):
            raise errors.InvalidArgumentError(f"there are {len(model_parts)} model_parts and {len(of_parts)} {what}: "
                                              "give one for each part, as a list")


# ---- job_config.checkpoint


def _value(keys: Any, name: str) -> Any:
    try:
        return getattr(keys, name)
    except AttributeError:
        raise errors.ConfigError(f"job_config.checkpoint has no {name}: the keys are {', '.join(_KEYS)}") from None


def _check(keys: Any) -> None:
    """Raises ConfigError for a key that is not known, or that has another value than the known ones."""
    for name in _KEYS:
        _value(keys, name)
    for name in dir(keys):  # torchtitan made classes of its sections
        value = getattr(keys, name)
        if not name.startswith("_") and name not in _KEYS + _OF_THE_PROGRAM and value and not callable(value):
            raise errors.ConfigError(f"{name} of job_config.checkpoint is {value!r}, and this manager would ignore it: "
                                     f"it knows {', '.join(_KEYS)}. Leave it out; TierckptManager.Config, for later "
                                     "versions of torchtitan, has more keys")
    _among(keys, "interval_type", ("steps", "seconds"))
    _among(keys, "export_dtype", tuple(_DTYPES))
    if str(keys.async_mode).lower() not in ASYNC_MODES:
        _among(keys, "async_mode", ASYNC_MODES)
    for name, least in (("interval", 1), ("keep_latest_k", 0)):
        if int(getattr(keys, name)) < least:
            raise errors.ConfigError(f"{name} of job_config.checkpoint is {getattr(keys, name)}: it must be at least "
                                     f"{least}")


def _among(keys: Any, name: str, allowed: tuple[str, ...]) -> None:
    if getattr(keys, name) not in allowed:
        raise errors.ConfigError(f"{name} of job_config.checkpoint is {getattr(keys, name)!r}: it must be one of "
                                 f"{', '.join(allowed)}")
