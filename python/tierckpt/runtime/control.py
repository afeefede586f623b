# SPDX-License-Identifier: Apache-2.0
"""Questions to the agent of this node, asked with the command `tierckpt`."""

import json
import os
import shutil
import subprocess
from typing import Any

from .. import errors
from .installation import PROGRAMS
from .native import NO_VERSION, Version
from .settings import ConfigSource, Overrides, configuration

_ANSWER_S, _DRAIN_S = 30, 180
_BAD_CONFIGURATION = "invalid configuration"  # the text of its status in tierckpt.h


def _command() -> str:
    own = os.environ.get("TIERCKPT_BIN_DIR", str(PROGRAMS))
    command = shutil.which("tierckpt", path=own) or shutil.which("tierckpt")
    if command is None:
        raise errors.UnsupportedError(
            "the command tierckpt, which is part of this package, is neither in $TIERCKPT_BIN_DIR nor in $PATH")
    return command


def ask(config: ConfigSource, overrides: Overrides, *words: str) -> dict[str, Any] | None:
    """The answer of `tierckpt --json WORDS` for the job of this configuration (as for init); None if none of its agents
    answers here. Raises ConfigError if the configuration is wrong, TimedOutError if the agent hangs, IoError if the
    answer is not JSON, UnsupportedError if there is no such command."""
    answer = _answer(config, overrides, *words)
    return answer if answer.get("ok") else None


def in_force(config: ConfigSource, overrides: Overrides) -> dict[str, Any]:
    """All keys of the configuration with the values that the agent has, or would have if none answers. Raises as ask.
    """
    return _answer(config, overrides, "config")


def _answer(config: ConfigSource, overrides: Overrides, *words: str) -> dict[str, Any]:
    done = _run([_command(), *_configuration(config, overrides), "--json", *words],
                _DRAIN_S if "drain" in words else _ANSWER_S)
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise errors.IoError(f"{done.args[0]} gave no answer to `{' '.join(words)}`: "
                             f"{done.stderr.strip()[-500:] or f'exit code {done.returncode}'}") from None
    if answer.get("status") == _BAD_CONFIGURATION:
        raise errors.ConfigError(answer["error"])
    return answer


def _configuration(config: ConfigSource, overrides: Overrides) -> list[str]:
    """As options of the command. It reads them as the library does: a relative path starts at the directory of the
    file."""
    values = configuration(config, overrides)
    file, text = values["config_file"], values["config_json"]
    return [*(["--config", file] if file is not None else []), *(["--config-json", text or "{}"])]


def _run(command: list[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise errors.TimedOutError(f"the agent has not answered `{' '.join(command)}` within {timeout_s} s") from None


def version_of(answer: dict[str, Any] | None, key: str) -> Version:
    """The version under this key of an answer, or NO_VERSION."""
    found = (answer or {}).get(key)
    return Version(found.get("term", 0), found.get("step", 0)) if found else NO_VERSION
