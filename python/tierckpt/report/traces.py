# SPDX-License-Identifier: Apache-2.0
"""Reads the files that agents write into trace_dir (docs/operations.md, A trace of versions)."""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import errors


@dataclass(frozen=True)
class Event:
    """One line of a trace."""

    at: float
    """Seconds since 1970, by the clock of its node."""
    job: str
    """By the name of the file, <job>.<node>.trace.json."""
    node: str
    name: str
    phase: str
    """b and e: something begins and ends; i: it happens; C: the value of a counter."""
    id: str = ""
    args: dict[str, Any] = field(default_factory=dict)

    @property
    def version(self) -> tuple[int, int]:
        """Term and step."""
        return int(self.args["term"]), int(self.args["step"])


def files_in(directory: str | os.PathLike[str]) -> list[Path]:
    """The traces in a directory, those that were full first. Raises NotFoundError if there are none."""
    found = sorted(Path(directory).glob("*.trace.json.old")) + sorted(Path(directory).glob("*.trace.json"))
    if not found:
        raise errors.NotFoundError(f"{directory} has no file *.trace.json: set trace_dir in the configuration, and run "
                                   "the job")
    return found


def read(paths: Iterable[str | os.PathLike[str]]) -> list[Event]:
    """All events of these files, in the order of their times. Raises IoError if one cannot be read, CorruptError if it
    is no trace."""
    return sorted((event for path in paths for event in _read(path)), key=lambda event: event.at)


def _read(path: str | os.PathLike[str]) -> list[Event]:
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise errors.IoError(f"{path}: {error.strerror}") from error
    try:
        return _events(json.loads(_whole(text)), Path(path).name)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise errors.CorruptError(f"{path} is no trace of an agent: {error!r}") from error


def _whole(text: str) -> str:
    """The array with its bracket, without a line that is still being written."""
    end = text.rfind(",\n")
    return "[]" if end < 0 else text[:end] + "]"


def _events(lines: list[dict[str, Any]], file: str) -> list[Event]:
    nodes = {line["pid"]: line["args"]["name"] for line in lines if line["ph"] == "M"}
    stem = file.removesuffix(".old").removesuffix(".trace.json")
    jobs = {pid: stem.removesuffix(f".{node}") for pid, node in nodes.items()}
    return [Event(line["ts"] / 1e6, jobs.get(line["pid"], stem), nodes.get(line["pid"], "?"), line["name"], line["ph"],
                  line.get("id", ""), line.get("args", {})) for line in lines if line["ph"] != "M"]
