# SPDX-License-Identifier: Apache-2.0
"""The classes of amzn_sagemaker_checkpointing 1.1 (HyperPod's managed tiered checkpointing), for functions of
torch.distributed.checkpoint: a writer for one step, and a reader of one step or of the newest.

    checkpoint_config = SageMakerCheckpointConfig(namespace=..., world_size=..., s3_tier_base_path="s3://bucket/runs")
    future = async_save(state_dict, storage_writer=SageMakerTieredStorageWriter(checkpoint_config, step=step))
    load(state_dict, storage_reader=SageMakerTieredStorageReader(checkpoint_config))

A namespace is a job of Tierckpt with this name."""

import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.distributed.checkpoint import storage as torch_storage

from .. import errors
from ..runtime.settings import is_url, save_dir_at
from .dcp import StorageReader, StorageWriter, flattened_by
from .dcp_functions import program
from .dcp_ids import Named
from .dcp_series import Series, Settings
from .inner_reader import StateDictReader

log = logging.getLogger("tierckpt")

_NAMESPACE = re.compile(r"[A-Za-z0-9_-]{1,48}")
_STEP_IN_PATH = re.compile(r"step_(\d{1,18})(?:/|$)")


@dataclass
class SageMakerCheckpointConfig:
    """What writers and readers of one training have in common. save_to_s3 and save_to_disk may be changed between
    saves: if one of them is true, the next writer's save goes to storage.

    namespace            letters, digits, - and _: the same on all ranks and in each start of a training, and of no
                         other training
    world_size           the number of ranks
    disk_tier_base_path  directory on storage that all nodes see
    s3_tier_base_path    s3://bucket/prefix, where versions go unless there is a disk_tier_base_path. Neither of them is
                         used if the configuration in $TIERCKPT_CONFIG has a save_dir
    s3_path_strategy     is not used
    logger               is not used: messages go to the logger `tierckpt`"""

    namespace: str
    world_size: int
    disk_tier_base_path: str = ""
    s3_tier_base_path: str = ""
    s3_path_strategy: Any = None
    save_to_s3: bool = False
    save_to_disk: bool = False
    logger: logging.Logger | None = None

    def __post_init__(self) -> None:
        if not _NAMESPACE.fullmatch(self.namespace):
            raise errors.ConfigError(f"namespace {self.namespace!r} must have 1 to 48 letters, digits, hyphens and "
                                     "underscores")
        if self.s3_tier_base_path and not is_url(self.s3_tier_base_path):
            raise errors.ConfigError(f"s3_tier_base_path {self.s3_tier_base_path} is no URL: give s3://bucket/prefix")

    @property
    def to_storage(self) -> bool:
        """Whether a save with this configuration goes to storage."""
        return self.save_to_s3 or self.save_to_disk


@dataclass(frozen=True)
class _Settings(Settings):
    """Of a namespace, in place of a path."""

    base: str = ""

    def keys_for(self, name: Named) -> dict[str, Any]:
        values = self.values()
        if "save_dir" not in values and not self.base:
            raise errors.ConfigError(
                f"namespace {name.series} has no storage: give disk_tier_base_path, on a file system that all nodes "
                "see, or s3_tier_base_path, or set TIERCKPT_CONFIG to a configuration with a save_dir")
        if "save_dir" in values:
            save_dir = values["save_dir"]
        else:
            save_dir = self.base if is_url(self.base) else save_dir_at(self.base)
        return {**dict(self.overrides), "job": name.series, "save_dir": save_dir}


class _Namespace(Series):
    """The series of a namespace: versions stay where the agents publish them."""

    def __init__(self, settings: Settings, name: Named, world_size: int) -> None:
        super().__init__(settings, name, None, False)
        if self.world.size != world_size:
            raise errors.InvalidArgumentError(f"namespace {name.series} has world_size {world_size}, but there are "
                                              f"{self.world.size} ranks")
        self.makes_directory = False

    def prepare(self, state_dict: Mapping[str, Any], name: Named, use_collectives: bool = True) -> int:
        self._check(name)
        return super().prepare(state_dict, name, use_collectives)

    def reader(self, state_dict: Mapping[str, Any], name: Named) -> torch_storage.StorageReader:
        self._check(name)
        return super().reader(state_dict, name)

    def _check(self, name: Named) -> None:
        """Collective before the first attach. The document's default has the time in it, which differs."""
        if self.tiers.attached:
            return
        names = sorted(set(self.world.gather(name.series)))
        if len(names) > 1:
            raise errors.InvalidArgumentError(f"the ranks have different namespaces, {', '.join(names)}: set the "
                                              "environment variable from which all of them take it")


def _named(config: SageMakerCheckpointConfig, step: int | None) -> Named:
    """A step of a namespace. There is no directory of this name; messages show it."""
    return Named(f"step {step} of {config.namespace}" if step else config.namespace, step, config.namespace, os.curdir)


def _settings_of(config: SageMakerCheckpointConfig) -> _Settings:
    known = program.settings_now()
    return _Settings(**{**vars(known), "base": config.disk_tier_base_path or config.s3_tier_base_path})


def _series(config: SageMakerCheckpointConfig) -> Series:
    return program.opened(("hyperpod", config.namespace), lambda _: _opened(config))


def _opened(config: SageMakerCheckpointConfig) -> _Namespace:
    settings = _settings_of(config)
    both = config.disk_tier_base_path and config.s3_tier_base_path and "save_dir" not in settings.values()
    opened = _Namespace(settings, _named(config, None), config.world_size)
    if both and opened.world.rank == 0:
        log.warning("versions of %s go to disk_tier_base_path, %s, also with save_to_s3: leave it out, and they go to "
                    "s3_tier_base_path", config.namespace, config.disk_tier_base_path)
    return opened


class SageMakerTieredStorageWriter(StorageWriter):
    """For one save: dcp.save(state_dict, storage_writer=...), or dcp.async_save.

    step   that of the training; default: the number in `path`, which has a part step_<number>

    The save is done when the step is committed in memory; with save_to_s3 or save_to_disk, when it is published. Steps
    count from 1: a save of step 0 is skipped, with a warning. Constructing it is not collective, the save is."""

    def __init__(self, checkpoint_config: SageMakerCheckpointConfig, path: str | os.PathLike[str] = "", step: int = -1,
                 **options: Any) -> None:
        step = _step(step, os.fspath(path))
        self._series = _series(checkpoint_config)
        self._name = _named(checkpoint_config, step or None)
        self._skipped = step == 0
        super().__init__(self._series.tiers, step or None, checkpoint_config.to_storage)

    def reset(self, checkpoint_id: Any = None) -> None:
        """The step stays: torch passes the checkpoint_id of its call here, which is not needed."""

    def stage(self, state_dict: dict[str, Any]) -> Any:
        if self._skipped or not self._tiers.on:
            return state_dict
        self._series.prepare(state_dict, self._name)
        return super().stage(state_dict).result()  # torch then returns a future, as the document's lines expect it

    def write_data(self, plan: Any, planner: Any) -> torch.futures.Future[list[torch_storage.WriteResult]]:
        if self._skipped:
            log.warning("step 0 of %s is not saved: steps count from 1", self._name.series)
            done: torch.futures.Future[list[torch_storage.WriteResult]] = torch.futures.Future()
            done.set_result([])
            return done
        if self._staged is None and self._tiers.on:
            from torch.distributed.checkpoint._nested_dict import unflatten_state_dict

            self._series.prepare(unflatten_state_dict(*flattened_by(planner)), self._name, self._use_collectives)
        return super().write_data(plan, planner)


def _step(step: int, path: str) -> int:
    if step >= 0:
        return step
    match = _STEP_IN_PATH.search(path)
    if match is None:
        raise errors.InvalidArgumentError(f"the step is not known: give step=, or a path with a part step_<number> "
                                          f"(path is {path!r})")
    return int(match[1])


class SageMakerTieredStorageReader(StateDictReader):
    """For one load of a step, or of the newest. tierckpt.dcp.load loads it from memory if that has it. torch's own load
    does not show its state dict to a reader: it reads storage, and what only memory has is written there before."""

    def __init__(self, checkpoint_config: SageMakerCheckpointConfig, step: int | None = None) -> None:
        super().__init__()
        if step is not None and step < 1:
            raise errors.NotFoundError(f"step {step} of {checkpoint_config.namespace} was not saved, since steps count "
                                       "from 1")
        self._config, self._name = checkpoint_config, _named(checkpoint_config, step)
        self._attached: torch_storage.StorageReader | None = None

    def reset(self, checkpoint_id: Any = None) -> None:
        """The step stays: torch passes the checkpoint_id of its call here, which is not needed."""

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike))

    def attach(self, state_dict: dict[str, Any]) -> None:
        self._attached = _series(self._config).reader(state_dict, self._name)

    def loaded(self) -> None:
        reader, self._attached = self._attached, None
        _series(self._config).loaded(reader)

    def choose(self) -> torch_storage.StorageReader:
        if self._attached is not None:
            return self._attached
        settings = _settings_of(self._config)
        return StorageReader(settings.config, overrides=settings.keys_for(self._name),
                             checkpoint_id=self._name.number)
