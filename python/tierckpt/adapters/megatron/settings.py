# SPDX-License-Identifier: Apache-2.0
"""The arguments of initialize_easyckpt as keys of the configuration, and those that come after the job has begun."""

import logging
import os
import platform
from pathlib import Path
from typing import Any

from ... import errors
from ...runtime import control
from ...runtime.settings import ConfigSource
from ...runtime.world import World

log = logging.getLogger("tierckpt")

_CHANGEABLE = ("save_mem_interval", "save_storage_interval", "max_ckpt_num", "on_node_loss")
_FORMAT = "%(asctime)s %(levelname)s rank {rank} %(message)s"


def interval(value: int | str | None) -> int | str | None:
    """Intervals of 0 or less mean never."""
    return 0 if isinstance(value, int) and value < 0 else value


def log_file_of_node(path: str, values: dict[str, Any]) -> str:
    """The log file of this node: test.log becomes test.node3.log, because nodes often share the working directory."""
    if path in ("", "-"):
        return path
    node = values.get("node") or os.environ.get("TIERCKPT_NODE") or platform.node()
    base, ending = os.path.splitext(os.path.abspath(os.path.expanduser(path)))
    return f"{base}.{node}{ending}"


class LogFile(logging.FileHandler):
    """The messages of this rank, in a file that the ranks of a node share."""

    def __init__(self, path: str, rank: int) -> None:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        super().__init__(path, mode="a", delay=False)
        self.setFormatter(logging.Formatter(_FORMAT.format(rank=rank)))


def change(world: World, now: dict[str, Any], config: ConfigSource, overrides: dict[str, Any],
           wanted: dict[str, Any]) -> list[str]:
    """Changes keys of the running job, which was attached with `config` and `overrides`, whose values are `now`.
    Returns the keys that were not changed. Collective."""
    left: list[str] = []
    if world.rank == 0:
        new = {key: value for key, value in wanted.items() if now.get(key) != value}
        defaults = _in_force(config, overrides) if new else {}
        left = [key for key, value in new.items() if defaults.get(key) != value
                and not (key in _CHANGEABLE and _set(config, overrides, key, value))]
    return world.gather(left)[0]


def _in_force(config: ConfigSource, overrides: dict[str, Any]) -> dict[str, Any]:
    """All keys of the running job, those with default values too."""
    try:
        return control.in_force(config, overrides)
    except errors.Error as error:
        log.warning("the values in force are not known: %s", error)
        return {}


def _set(config: ConfigSource, overrides: dict[str, Any], key: str, value: Any) -> bool:
    """Whether the agent has taken this value."""
    try:
        return control.ask(config, overrides, "config", "--set", f"{key}={value}") is not None
    except errors.Error as error:
        log.warning("%s: %s", key, error)
        return False
