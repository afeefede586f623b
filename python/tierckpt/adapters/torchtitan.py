# SPDX-License-Identifier: Apache-2.0
"""torchtitan: a checkpoint manager that is chosen in the trainer's configuration.

    from tierckpt.torchtitan import TierckptManager

    Trainer.Config(..., checkpoint=TierckptManager.Config(enable=True, interval=500, save_mem_interval=5))
"""

from dataclasses import dataclass, field
from typing import Any, Literal

from torchtitan.components.checkpointer import BaseCheckpointManager, CheckpointManager

from .. import errors
from ..core.checkpoint import Checkpoint
from ..runtime.settings import values_of_file, with_save_dir
from .api_compat import RequiredApi, usable
from .torchtitan_job import ASYNC_MODES, TitanJob
from .torchtitan_state import MODEL, STATE_BYTES

_PACKAGE = "torchtitan.components.checkpointer"
_BUILT_WITH = ("config", "dataloader", "model_parts", "optimizers", "lr_schedulers", "states", "sd_adapter",
               "base_folder")
REQUIRED_API = (
    RequiredApi(f"{_PACKAGE}:BaseCheckpointManager._load", ("step",)),
    RequiredApi(f"{_PACKAGE}:BaseCheckpointManager._save", ("curr_step", "last_step")),
    RequiredApi(f"{_PACKAGE}:BaseCheckpointManager._maybe_wait_for_staging"),
    RequiredApi(f"{_PACKAGE}:BaseCheckpointManager._wait_for_saving"),
    RequiredApi(f"{_PACKAGE}:BaseCheckpointManager._close"),
    RequiredApi(f"{_PACKAGE}:CheckpointManager.__init__", _BUILT_WITH),
    RequiredApi(f"{_PACKAGE}:CheckpointManager._load", ("step",)),
    RequiredApi(f"{_PACKAGE}:CheckpointManager._save", ("curr_step", "last_step")),
    RequiredApi(f"{_PACKAGE}:CheckpointManager._flattened_model_states_sd", ("state_dict",)),
    RequiredApi("torchtitan.components.optimizer:OptimizersContainer.__iter__"),
)


class TierckptManager(BaseCheckpointManager):
    """Keys of torchtitan mean the same as with its own managers. One of these does what only they can do: torchtitan's
    own checkpoints, the initial load, and a last save of the weights alone."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseCheckpointManager.Config):
        async_mode: Literal["disabled", "async", "async_with_pinned_mem"] = "async_with_pinned_mem"
        """When save returns. disabled: the version is committed, and on storage if it goes there. async: it is copied.
        async_with_pinned_mem: at once; the next optimizer step waits for the rest of the copy."""

        save_mem_interval: int | str = 10
        """How often to save to memory: a number of steps, a time ("30s"), or "off"."""

        storage_interval_s: float | None = None
        """How often to save to storage, in seconds, instead of every `interval` steps."""

        config_file: str | None = None
        """Path of the configuration file of Tierckpt."""

        settings: dict[str, Any] = field(default_factory=dict[str, Any])
        """Keys that override those of config_file."""

        state_bytes: int = STATE_BYTES
        """Bytes reserved for the state of dataloader, schedule and trainer in each rank's snapshot."""

        def __post_init__(self) -> None:
            BaseCheckpointManager.Config.__post_init__(self)
            if self.async_mode not in ASYNC_MODES:
                raise ValueError(f"Invalid async_mode: {self.async_mode}")

    def __init__(self, config: Config, *, dataloader: Any, model_parts: Any, optimizers: Any, lr_schedulers: Any,
                 states: Any, sd_adapter: Any, base_folder: str = "") -> None:
        self.save_future = None
        self.enable = False  # close does nothing if the rest fails
        if not (config.enable and usable("tierckpt.torchtitan", "torchtitan", REQUIRED_API)):
            return
        self._config = config
        self._stock = CheckpointManager(
            _stock_config(config), dataloader=dataloader, model_parts=model_parts, optimizers=optimizers,
            lr_schedulers=lr_schedulers, states=states, sd_adapter=sd_adapter, base_folder=base_folder)
        self._job = TitanJob(model_parts, optimizers, states, _settings(config, base_folder), config.async_mode,
                             config.state_bytes, folder=self._stock.folder, stock_states=self._stock_states)
        self._finished = False
        self.enable = True

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The tierckpt.Checkpoint, from the first load or save until the end."""
        return self._job.checkpoint if self.enable else None

    def _stock_states(self, with_models: bool) -> dict[str, Any]:
        states = self._stock.states
        return self._stock._flattened_model_states_sd(
            states if with_models else {key: state for key, state in states.items() if key != MODEL})

    # ---- load

    def _load(self, step: int = -1) -> bool:
        for key in self._config.exclude_from_loading:
            if key not in self._stock.states:
                raise ValueError(f"{key} not found in state_dict.")
        loaded = self._job.load(None if step == -1 else step, self._config.exclude_from_loading)
        return loaded is not None or self._stock._load(step)

    # ---- save

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        config = self._config
        if config.load_only:
            return False
        self._job.look()
        if curr_step == 0:
            return self._stock._save(0, last_step)  # create_seed_checkpoint
        self._job.attach()
        self._finished = last_step
        if last_step and config.last_save_model_only:
            self._job.fence()
            return self._stock._save(curr_step, last_step=True)
        by_steps = config.storage_interval_s is None and curr_step % config.interval == 0
        if last_step or by_steps or (curr_step == 1 and config.enable_first_step_checkpoint):
            self._job.save_to_storage(curr_step, last_step)
            return True
        return bool(self._job.save_if_needed(curr_step))

    def _maybe_wait_for_staging(self) -> None:
        self._job.fence()

    def _wait_for_saving(self) -> None:
        """Never called: save_future stays None, because nothing has to wait for a save."""

    # ---- end

    def _close(self) -> None:
        """The trainer always closes it; the job is done only if the last step was saved."""
        if self._job.checkpoint is not None:
            self._stock.close()
            self._job.close(job_done=self._finished)


def _settings(config: TierckptManager.Config, base_folder: str) -> dict[str, Any]:
    values = {} if config.config_file is None else values_of_file(config.config_file)
    values |= config.settings
    values = with_save_dir(values, base_folder, config.folder)
    # What torchtitan's own keys set is set by them alone.
    for key in ("save_mem_interval", "save_storage_interval", "max_ckpt_num"):
        if key in values:
            raise errors.ConfigError(f"{key} is set by torchtitan's checkpoint keys (save_mem_interval, interval or "
                                     "storage_interval_s, keep_latest_k): take it out of config_file and settings")
    seconds = config.storage_interval_s
    return {**values, "save_mem_interval": config.save_mem_interval, "max_ckpt_num": config.keep_latest_k,
            "save_storage_interval": "off" if seconds is None else f"{seconds}s"}


def _stock_config(config: TierckptManager.Config) -> CheckpointManager.Config:
    names = ("enable", "folder", "interval", "initial_load_path", "initial_load_model_only", "initial_load_in_hf",
             "initial_load_in_hf_quantized", "last_save_model_only", "last_save_in_hf", "export_dtype", "load_step",
             "exclude_from_loading", "create_seed_checkpoint")
    return CheckpointManager.Config(**{name: getattr(config, name) for name in names}, keep_latest_k=0)
