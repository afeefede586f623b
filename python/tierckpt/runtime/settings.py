# SPDX-License-Identifier: Apache-2.0
"""The configuration as users give it: a file or a dict, and overrides that take precedence over both."""

import json
import logging
import os
from pathlib import Path
from typing import Any

from .. import errors

log = logging.getLogger("tierckpt")

ConfigSource = str | os.PathLike[str] | dict[str, Any] | None
"""A configuration: the path of a JSON file, or a dict with the same keys."""

Overrides = dict[str, Any] | None
"""Keys that override those of a configuration."""

FRAMEWORK = "framework"
"""A value of the key storage_format: what goes to storage is the framework's own checkpoint."""

PATH_ENDINGS = ("_dir", "_path", "_file", "_textfile", "_mount")
"""Of the names of keys whose values are paths."""


def configuration(config: ConfigSource, overrides: Overrides) -> dict[str, Any]:
    """The arguments of the library for a configuration and overrides."""
    values = dict(config) if isinstance(config, dict) else {}
    values.update(overrides or {})
    path = None if config is None or isinstance(config, dict) else os.fspath(config)
    return {"config_file": path, "config_json": json.dumps(values) if values else None}


def values_of(config: ConfigSource, overrides: Overrides) -> dict[str, Any]:
    """The keys of a configuration and of overrides as one dict. Raises ConfigError if a file cannot be read."""
    values = dict(config) if isinstance(config, dict) else {} if config is None else values_of_file(config)
    return {**values, **(overrides or {})}


def values_of_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The keys of a configuration file. Relative paths start at the file's directory, as they do for the library.
    Raises ConfigError if it cannot be read or is not a JSON object."""
    try:
        values = json.loads(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise errors.ConfigError(f"{path}: {error}") from error
    if not isinstance(values, dict):
        raise errors.ConfigError(f"{path}: the configuration must be one JSON object")
    place = os.path.dirname(os.path.abspath(path))
    return {key: os.path.join(place, value) if key.endswith(PATH_ENDINGS) and _is_relative(value) else value
            for key, value in values.items()}


def _is_relative(value: object) -> bool:
    """URLs, variables and `~` do not count as relative paths: the library refuses or expands them."""
    return isinstance(value, str) and value != "" and value[0] not in "/~$" and ":/" not in value


def storage_format(config: ConfigSource, overrides: Overrides) -> str:
    """The value of this key: dcp, framework, or else tierckpt. What is wrong with a configuration says the library,
    which reads it next."""
    try:
        value = values_of(config, overrides).get("storage_format")
        return value if value in ("dcp", FRAMEWORK) else "tierckpt"
    except (errors.ConfigError, ValueError, TypeError):
        return "tierckpt"


def kept_on_storage(config: ConfigSource, overrides: Overrides) -> int:
    """The value of max_ckpt_num; 0: all are kept."""
    return int(values_of(config, overrides).get("max_ckpt_num", 3))


def save_dir_at(*path: str) -> str:
    """A save_dir in a framework's own directory, which is created if it is missing. Raises ConfigError for a URL."""
    joined = os.path.join(*path)
    if "://" in joined:
        raise errors.ConfigError(f"save_dir would be {joined}, and that is a URL: give a save_dir on a file system "
                                 "that is mounted here")
    absolute = os.path.abspath(joined)
    os.makedirs(os.path.dirname(absolute), exist_ok=True)
    return absolute


def is_url(save_dir: object) -> bool:
    """Whether it is in a store of objects, which is no file system."""
    return str(save_dir).startswith("s3://")


def local_save_dir(save_dir: object, what: str) -> str:
    """The absolute path of a save_dir in which this process works with files itself. Raises ConfigError for a URL."""
    if is_url(save_dir):
        raise errors.ConfigError(f"save_dir {save_dir} is in a store of objects, and {what}: give a save_dir on a file "
                                 "system that all nodes see")
    return os.path.abspath(os.path.expanduser(str(save_dir)))


def with_save_dir(values: dict[str, Any], *path: str) -> dict[str, Any]:
    """The keys, with a save_dir at this path if they have none."""
    return values if "save_dir" in values else {**values, "save_dir": save_dir_at(*path)}


def warn_of_memory(config: ConfigSource, overrides: Overrides, mounts: str = "/proc/self/mounts") -> None:
    """Warns if save_dir is on a file system in memory. The agent's log has the same warning, but is seldom read. Only
    the path is examined, because storage that hangs must not delay the attach."""
    save_dir = str(values_of(config, overrides).get("save_dir", "/"))
    if is_url(save_dir):
        return
    save_dir = os.path.abspath(os.path.expanduser(save_dir))
    if _kind_of_file_system(save_dir, mounts) in ("tmpfs", "ramfs"):
        log.warning("save_dir %s is on a file system in memory: what is saved there is lost with the node, so give a "
                    "directory on storage", save_dir)


def _kind_of_file_system(path: str, mounts: str) -> str:
    """The kind of the mount with the longest name above the path. Of several mounts of one name the last counts."""
    found, kind = "", ""
    try:
        lines = Path(mounts).read_text(errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        _device, where, its_kind, *_rest = line.split(" ")
        where = where.replace("\\040", " ")
        if (path == where or path.startswith(where.rstrip("/") + "/")) and len(where) >= len(found):
            found, kind = where, its_kind
    return kind
