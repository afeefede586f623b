# SPDX-License-Identifier: Apache-2.0
"""torchtitan: a checkpoint manager that is chosen in the trainer's configuration.

    from tierckpt.torchtitan import TierckptManager

    Trainer.Config(..., checkpoint=TierckptManager.Config(enable=True, interval=500, save_mem_interval=5))
"""


import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torchtitan.components.checkpointer import (
    DATALOADER,
    MODEL,
    OPTIMIZER,
    BaseCheckpointManager,
    CheckpointManager,
)

from .. import errors
from ..core.checkpoint import attach
from ..runtime.settings import values_of_file, with_save_dir
from ..runtime.world import World, join_world
from ..state import groups, twins, walk_model
from ..state.contents import Contents, before_optimizer_step
from ..state.sharding import Placer
from ..state.statetree import join
from ..state.user_state import UserState
from ..state.walk_optimizer import OptimizerState
from .api_compat import RequiredApi, usable
from .reshard import load_any_layout
from .trained import STORAGE_TIMEOUT_S, OptimizerStates, Trained

log = logging.getLogger("tierckpt")

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
    RequiredApi("torchtitan.components.optimizer:OptimizersContainer.__iter__"),
)

_STATE_BYTES = 4 << 20
# In the state of torchtitan's dataloaders: what is the data-parallel rank's own, and how many such ranks there are.
_DP_RANK, _DP_SIZE = "dp_rank_", "world_size"


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

        state_bytes: int = _STATE_BYTES
        """Bytes reserved for the state of dataloader, schedule and trainer in each rank's snapshot."""

        def __post_init__(self) -> None:
            BaseCheckpointManager.Config.__post_init__(self)
            if self.async_mode not in ("disabled", "async", "async_with_pinned_mem"):
                raise ValueError(f"Invalid async_mode: {self.async_mode}")

    def __init__(self, config: Config, *, dataloader: Any, model_parts: Any, optimizers: Any, lr_schedulers: Any,
                 states: Any, sd_adapter: Any, base_folder: str = "") -> None:
        self.save_future = None
        self.enable = config.enable and usable("tierckpt.torchtitan", "torchtitan", REQUIRED_API)
        self.checkpoint: Any = None
        """The tierckpt.Checkpoint, from the first load or save until the end."""
        if not self.enable:
            return
        self._config = config
        self._settings = _settings(config, base_folder)
        self._model_parts, self._optimizers = model_parts, optimizers
        self._stock = CheckpointManager(
            _stock_config(config), dataloader=dataloader, model_parts=model_parts, optimizers=optimizers,
            lr_schedulers=lr_schedulers, states=states, sd_adapter=sd_adapter, base_folder=base_folder)
        self._states = _OtherStates(states)
        self._finished = False

    # ---- attach

    def _attach(self) -> None:
        """Attaches at the first load or save, when the model has its values."""
        if self.checkpoint is not None:
            return
        world = join_world()
        contents = _contents(self._model_parts, self._optimizers, self._states, self._config.state_bytes, world)
        # The trainer asks for the fence right before the step, and other loops might forget it.
        fences = [before_optimizer_step(optimizer) for optimizer in self._optimizers]
        self.checkpoint = attach(contents, world=world, config=self._settings, fences=fences)
        self._world, self._contents = world, contents

    # ---- load

    def _load(self, step: int = -1) -> bool:
        for key in self._config.exclude_from_loading:
            if key not in self._stock.states:
                raise ValueError(f"{key} not found in state_dict.")
        self._attach()
        with self._states.without(self._config.exclude_from_loading), self._optimizer_kept():
            loaded = load_any_layout(self.checkpoint, self._contents, self._world, None if step == -1 else step,
                                     config=self._settings)
        if loaded is not None:
            log.info("loaded step %d (%s)", loaded, self.checkpoint.restored or "with another number of ranks")
            return True
        return self._stock._load(step)

    def _optimizer_kept(self) -> "_Kept":
        kept = OPTIMIZER in self._config.exclude_from_loading
        return _Kept(self._optimizers if kept else ())

    # ---- save

    def _save(self, curr_step: int, last_step: bool = False) -> bool:
        config = self._config
        if config.load_only:
            return False
        if curr_step == 0:
            return self._stock._save(0, last_step)  # create_seed_checkpoint
        self._attach()
        self._finished = last_step
        if last_step and config.last_save_model_only:
            self.checkpoint.fence()
            return self._stock._save(curr_step, last_step=True)
        by_steps = config.storage_interval_s is None and curr_step % config.interval == 0
        if last_step or by_steps or (curr_step == 1 and config.enable_first_step_checkpoint):
            self.checkpoint.save_checkpoint(curr_step, to_storage=True)
            self._saved(curr_step, "drained" if last_step or config.async_mode == "disabled" else None)
            return True
        started = self.checkpoint.save_checkpoint_if_needed(curr_step)
        if started:
            self._saved(curr_step, "committed" if config.async_mode == "disabled" else None)
        return started

    def _saved(self, step: int, stage: str | None) -> None:
        if self._config.async_mode != "async_with_pinned_mem":
            self.checkpoint.fence()
        if stage is None:
            return
        try:
            self.checkpoint.wait(stage, step, STORAGE_TIMEOUT_S)
        except errors.Error as error:  # as for any other save: it is logged, and training continues
            log.warning("step %d is not %s: %s", step, stage, error)

    def _maybe_wait_for_staging(self) -> None:
        if self.checkpoint is not None:
            self.checkpoint.fence()

    def _wait_for_saving(self) -> None:
        """Never called: save_future stays None, because nothing has to wait for a save."""

    # ---- end

    def _close(self) -> None:
        """The trainer always closes it; the job is done only if the last step was saved."""
        checkpoint, self.checkpoint = self.checkpoint, None
        if checkpoint is not None:
            self._stock.close()
            checkpoint.close(job_done=self._finished)


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


class _OtherStates:
    """The trainer's state other than models and optimizers, as one object: data loader, schedule and its own
    counters."""

    def __init__(self, states: dict[str, Any]) -> None:
        self._states = {key: state for key, state in states.items()
                        if key not in (MODEL, OPTIMIZER) and state is not None}
        self._excluded: Iterable[str] = ()

    def without(self, excluded: Iterable[str]) -> "_OtherStates":
        """For a with-statement within which these are not loaded."""
        self._excluded = excluded
        return self

    def __enter__(self) -> "_OtherStates":
        return self

    def __exit__(self, *_error: BaseException | None) -> None:
        self._excluded = ()

    def state_dict(self) -> dict[str, Any]:
        return {key: state.state_dict() for key, state in self._states.items()}

    def load_state_dict(self, value: dict[str, Any]) -> None:
        for key, state in self._states.items():
            if key not in self._excluded and key in value:
                state.load_state_dict(value[key])

    def fits(self, saved: dict[str, Any]) -> None:
        """Raises LayoutError unless the dataloader can go on with its state in this value. Schedule and trainer are the
        same on all ranks."""
        fault = self._fault(saved)
        if fault is not None:
            raise errors.LayoutError(fault)

    def choose(self, values: Iterable[dict[str, Any]]) -> dict[str, Any] | None:
        """The value of a rank that had the same part of the data, or else the first, of which `fits` says why it cannot
        be loaded. Tensors that are kept apart from a value are there for the first alone."""
        first = None
        for value in values:
            apart: list[str] = []
            join(value, apart.append)
            if self._fault(value) is None and (first is None or not apart):
                return value
            first = value if first is None else first
        return first

    def _fault(self, saved: dict[str, Any]) -> str | None:
        loader, of_loader = self._states.get(DATALOADER), saved.get(DATALOADER)
        if loader is None or not isinstance(of_loader, dict) or DATALOADER in self._excluded:
            return None
        here: dict[str, Any] = loader.state_dict() if of_loader else {}
        own = [key for key in here if str(key).startswith(_DP_RANK)]
        before, now = of_loader.get(_DP_SIZE), here.get(_DP_SIZE)
        if own and before != now:
            return (f"the state of the dataloader was saved by {before} data-parallel ranks, there are {now} now, and "
                    f"torchtitan cannot divide it among them: add {DATALOADER!r} to exclude_from_loading to load "
                    "everything else and begin the data anew")
        lacks = [key for key in own if key not in of_loader]
        return f"the state of the dataloader is not that of {lacks[0]}, which this rank needs" if lacks else None


class _Kept:
    """Puts optimizers back to what they were before the with-statement."""

    def __init__(self, optimizers: Any) -> None:
        self._optimizers = list(optimizers)

    def __enter__(self) -> None:
        self._tensors = [(tensor, tensor.clone()) for optimizer in self._optimizers
                         for state in optimizer.state.values() for tensor in state.values() if torch.is_tensor(tensor)]
        self._groups = [[dict(group) for group in optimizer.param_groups] for optimizer in self._optimizers]

    def __exit__(self, *_error: BaseException | None) -> None:
        with torch.no_grad():
            for tensor, before in self._tensors:
                tensor.copy_(before)
        for optimizer, groups_before in zip(self._optimizers, self._groups, strict=True):
            for group, values in zip(optimizer.param_groups, groups_before, strict=True):
                group.update(values)


# ---- contents


def _contents(model_parts: Any, optimizers: Any, others: _OtherStates, state_bytes: int, world: World) -> Contents:
    """Parameters by their own names and in their own memory. state_dict() has others for fused ones: copies, which its
    hooks create each time."""
    placer = Placer(world.rank, groups.of_ranks([world.rank]) if world.size == 1 else None)
    optimizers = list(optimizers)
    for optimizer in optimizers:
        _refuse_unknown(optimizer)
    trained = Trained([walk_model.unwrap(part) for part in model_parts], optimizers, placer)
    states, extra = _StatesOfParts(trained.states), UserState(others, reshard="any")
    records = trained.records(extra.records(placer))
    twins.confirm(records, world)
    rest = replace(extra.blob(state_bytes), fits=others.fits, choose=others.choose)
    blobs = [*trained.module_blobs, states.blob("optimizer"), rest, trained.rng.blob(None)]
    return Contents(records, blobs, check=states.check)


class _StatesOfParts(OptimizerStates):
    """The optimizers of all model parts. Other ranks may have had more parts, or fewer."""

    def capture(self) -> dict[str, Any]:
        return {"parts": [state.capture() for state in self._states]}

    def fits(self, saved: dict[str, Any]) -> None:
        for state, value in self._with_own(saved):
            state.fits_groups(value)

    def apply(self, saved: dict[str, Any]) -> None:
        for state, value in self._with_own(saved):
            state.apply(value)

    def _with_own(self, saved: dict[str, Any]) -> Iterator[tuple[OptimizerState, dict[str, Any]]]:
        """torchtitan gives all parts the same hyperparameters."""
        for i, state in enumerate(self._states):
            yield state, saved["parts"][min(i, len(saved["parts"]) - 1)]


def _refuse_unknown(optimizer: torch.optim.Optimizer) -> None:
    hooks = [getattr(hook, "__name__", "") for hook in optimizer._optimizer_step_pre_hooks.values()]
    if "_bf16_state_init_hook" in hooks:
        raise errors.UnsupportedError("fused_opt_states_bf16 makes the optimizer's state in the first step, and it is "
                                      "needed before: use another implementation of the optimizer")
