# SPDX-License-Identifier: Apache-2.0
"""Directories checkpoint-<step> as Hugging Face's Trainer writes them, made from published versions.

With DeepSpeed they consist of the files that every rank writes. Otherwise each rank writes its small files into
tmp-checkpoint-<step> when it saves; once the version of that step is published, a thread of one rank adds model and
optimizer from it and renames the directory, so that a checkpoint-<step> is always complete. The thread waits for
storage without delaying training, and after a restart it completes the directories that were left unfinished."""

import json
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch

from .. import errors
from ..core.published import open_published
from ..state import jsonstate
from .background_writer import sync, sync_files
from .marked import MARKER, delete, empty, mark

log = logging.getLogger("tierckpt")

_PLAN, _OTHERS = "tierckpt-plan.json", "tierckpt-others.json"
_POLL_S = 0.1


_Name = TypeVar("_Name", bound=Hashable)


def building(output_dir: str | os.PathLike[str], step: int) -> Path:
    """The directory of a step before it is complete; created, with its marker, if it is missing."""
    path = Path(output_dir, f"tmp-checkpoint-{step}")
    path.mkdir(parents=True, exist_ok=True)
    mark(path)
    return path


def _steps(output_dir: str | os.PathLike[str], prefix: str) -> list[int]:
    """The steps of the directories below output_dir that have our marker, in order."""
    found = (re.fullmatch(rf"{prefix}-(\d+)", path.name) for path in Path(output_dir).glob(f"{prefix}-*"))
    return sorted(int(match[1]) for match in found if match and Path(output_dir, match[0], MARKER).is_file())


def _read(version: Path, keys: dict[_Name, str]) -> dict[_Name, torch.Tensor]:
    """Whole tensors, by the names that the caller uses for their keys. Names of the same key share the tensor."""
    with open_published(version) as published:
        tensors = {key: published.read(key) for key in set(keys.values())}
    return {name: tensors[key] for name, key in keys.items()}


@dataclass(frozen=True)
class OptimizerPlan:
    """A state of optimizer.state_dict(), with keys of the published version in the place of tensors."""

    groups: list[dict[str, Any]]
    keys: dict[int, dict[str, str]]
    values: dict[int, dict[str, Any]]

    def write(self, directory: Path) -> None:
        (directory / _PLAN).write_bytes(jsonstate.dumps("the optimizer", vars(self)))

    @classmethod
    def read(cls, directory: Path) -> "OptimizerPlan":
        return cls(**jsonstate.loads((directory / _PLAN).read_bytes()))

    def state_dict(self, version: Path) -> dict[str, Any]:
        flat = {(number, name): key for number, state in self.keys.items() for name, key in state.items()}
        state: dict[int, dict[str, Any]] = {number: dict(values) for number, values in self.values.items()}
        for (number, name), tensor in _read(version, flat).items():
            state.setdefault(number, {})[name] = tensor
        return {"state": state, "param_groups": self.groups}


def _numbers(name: str) -> tuple[int, int]:
    """Term and step in the name of a version's directory."""
    step, _, term = name.removeprefix("v").partition(".t")
    return int(term), int(step)


@dataclass(frozen=True)
class _Awaited:
    """A step whose version is not published yet, and the versions that were there when it was saved."""

    step: int
    others: list[str]
    own: bool  # it was saved by this process

    def is_newer(self, name: str) -> bool:
        return name not in self.others

    def write(self, directory: Path) -> None:
        (directory / _OTHERS).write_text(json.dumps(self.others))

    @classmethod
    def read(cls, step: int, directory: Path) -> "_Awaited | None":
        path = directory / _OTHERS
        try:
            return cls(step, json.loads(path.read_text()), own=False)
        except (FileNotFoundError, ValueError):
            return None


class Directories:
    """The directories below one output_dir: how they become complete, and which of them are kept."""

    def __init__(self, output_dir: str | os.PathLike[str], keep: int, limit: str = "save_total_limit") -> None:
        """keep is the number of directories to keep, 0 for all, and `limit` the name of the setting that says so."""
        self._output_dir = Path(output_dir)
        self._keep, self._limit = keep, limit
        self._protected: Path | None = None

    def protect(self, directory: str | None) -> None:
        """This directory is not deleted when old ones are."""
        self._protected = None if directory is None else Path(directory)

    def keep_only_protected(self) -> None:
        """Does what the Trainer does at its end if it is to keep one directory, and the best is not the last. No
        directory may be in the making."""
        for step in _steps(self._output_dir, "checkpoint"):
            path = self._output_dir / f"checkpoint-{step}"
            if path != self._protected:
                delete(path, "save_total_limit is 1, and it is not the best")

    def delete_unfinished(self, besides: int | None = None) -> None:
        """Deletes directories that will never be complete. None may be under construction, apart from the one of the
        step `besides`."""
        for step in _steps(self._output_dir, "tmp-checkpoint"):
            left = Path(self._output_dir, f"tmp-checkpoint-{step}")
            if step != besides:
                _try(f"{left} could not be deleted", delete, left, "a save that was cut off")

    def complete(self, step: int) -> None:
        """Called when everything is in the `building` directory of the step."""
        self._make_whole(step)
        self._rotate()

    def _empty_trash(self) -> None:
        for prefix in ("trash-checkpoint", "trash-tmp-checkpoint"):
            for step in _steps(self._output_dir, prefix):
                empty(self._output_dir / f"{prefix}-{step}")

    def _make_whole(self, step: int) -> None:
        directory, target = building(self._output_dir, step), self._output_dir / f"checkpoint-{step}"
        sync_files(directory)
        if (target / MARKER).is_file():
            delete(target, "it is being replaced")
        os.rename(directory, target)
        sync(self._output_dir)
        log.info("checkpoint-%d is in %s", step, self._output_dir)

    def _rotate(self) -> None:
        _try("old directories could not be deleted", self._delete_old)

    def _delete_old(self) -> None:
        if self._keep == 0:
            return
        paths = [self._output_dir / f"checkpoint-{step}" for step in _steps(self._output_dir, "checkpoint")]
        # The best one stays, in the place of the oldest of those that would; the newest does in any case.
        stay = [path for path in paths if path == self._protected]
        others = [path for path in paths if path != self._protected]
        room = max(1, self._keep - len(stay)) if paths and paths[-1] != self._protected else self._keep - len(stay)
        for path in others[:max(0, len(others) - room)]:
            delete(path, f"{self._limit} is {self._keep}")


class WrittenCheckpoints(Directories):
    """Directories of files that the ranks write. One rank has this object."""

    def finish_left(self) -> None:
        """Deletes what an earlier process left unfinished, since it cannot be completed."""
        self._empty_trash()
        self.delete_unfinished()


class PlainCheckpoints(Directories):
    """The thread and its work. `model` has the key in a published version for each name in model.state_dict();
    `write_weights` writes a state dict of the model into a directory."""

    def __init__(self, output_dir: str | os.PathLike[str], versions: Path, keep: int, model: dict[str, str],
                 write_weights: Callable[[Path, dict[str, Any]], None]) -> None:
        super().__init__(output_dir, keep)
        self._versions = versions
        self._model = model
        self._write_weights = write_weights
        self._lock = threading.Condition()
        self._waiting: dict[int, _Awaited] = {}
        self._ending = self._stopped = False
        self._thread = threading.Thread(target=self._run, name="tierckpt-plain", daemon=True)

    def finish_left(self) -> None:
        """Completes what an earlier process left unfinished, if its version is published by now. To be called before
        `start`."""
        self._empty_trash()
        for step in _steps(self._output_dir, "tmp-checkpoint"):
            left = _Awaited.read(step, building(self._output_dir, step))
            if left is None:  # it was not even begun by this rank
                delete(building(self._output_dir, step), "a save that was cut off")
            elif version := self._version(left):
                self._try_to_finish(step, version)
            else:
                self._waiting[step] = left  # agents outlive trainers

    def start(self, best: str | None) -> None:
        """From now on directories are completed as their versions are published. `best` as for protect."""
        self.protect(best)
        self._thread.start()

    def begin(self, step: int) -> None:
        """To be called before the save of this step, to note the versions that exist already."""
        _Awaited(step, self._published(), own=True).write(building(self._output_dir, step))

    def saved(self, step: int) -> None:
        """To be called when the save has begun and everything small is in the `building` directory of the step."""
        awaited = _Awaited.read(step, building(self._output_dir, step))
        if awaited is None:
            raise errors.InternalError(f"the save of step {step} was not begun")
        with self._lock:
            self._waiting[step] = replace(awaited, own=True)
            self._lock.notify_all()

    def waiting(self) -> list[int]:
        """The steps that this process has saved and that are not complete yet, oldest first."""
        with self._lock:
            return sorted(step for step, awaited in self._waiting.items() if awaited.own)

    def give_up(self, step: int) -> None:
        """There will be no version of this step."""
        if self._take(step):
            log.warning("no checkpoint-%d: its version was not published", step)
            shutil.rmtree(self._output_dir / f"tmp-checkpoint-{step}", ignore_errors=True)

    def wait_for(self, step: int, timeout: float) -> bool:
        """Waits until the directory of a published step is complete, or has failed. False if that takes too long."""
        with self._lock:
            return self._lock.wait_for(lambda: step not in self._waiting, timeout)

    def close(self, to_the_end: bool) -> None:
        """to_the_end=True: no more versions will come; directories of published versions are completed, and the others
        are given up. False: the next process completes what is left."""
        with self._lock:
            self._ending = True
            self._stopped = not to_the_end
            self._lock.notify_all()
        if self._thread.is_alive():
            self._thread.join()
        for step in list(self._waiting) if to_the_end else ():
            self.give_up(step)

    # ---- the thread

    def _take(self, step: int) -> bool:
        with self._lock:
            known = self._waiting.pop(step, None) is not None
            self._lock.notify_all()
        return known

    def _run(self) -> None:
        while (found := self._next()) is not None:
            awaited, version = found
            if version is None:
                self.give_up(awaited.step)
            else:
                self._try_to_finish(awaited.step, version)
                self._rotate()
                self._take(awaited.step)

    def _next(self) -> tuple["_Awaited", Path | None] | None:
        """The next step whose version is published, or never will be; None if nothing is left to do."""
        while True:
            with self._lock:
                waiting, ending = {} if self._stopped else dict(self._waiting), self._ending
            for awaited in waiting.values():
                if (version := self._version(awaited)) or self._is_overtaken(awaited):
                    return awaited, version
            if ending:
                return None
            with self._lock:
                self._lock.wait_for(partial(self._has_news, set(waiting)), _POLL_S if waiting else None)

    def _has_news(self, known: set[int]) -> bool:
        """Whether other steps are waited for than these, or no more will come."""
        return self._ending or self._waiting.keys() != known

    def _published(self) -> list[str]:
        return [path.parent.name for path in self._versions.glob("v*.t*/manifest.json")]

    def _version(self, awaited: "_Awaited") -> Path | None:
        """The directory of its version, if that is published."""
        found = (name for name in self._published() if awaited.is_newer(name) and _numbers(name)[1] == awaited.step)
        newest = max(found, key=_numbers, default=None)
        return None if newest is None else self._versions / newest

    def _is_overtaken(self, awaited: "_Awaited") -> bool:
        return any(awaited.is_newer(name) and _numbers(name)[1] > awaited.step for name in self._published())

    def _try_to_finish(self, step: int, version: Path) -> None:
        _try(f"checkpoint-{step} could not be written from the published version", self._finish, step, version)

    def _finish(self, step: int, version: Path) -> None:
        directory = building(self._output_dir, step)
        self._write_weights(directory, _read(version, self._model))
        if (directory / _PLAN).exists():
            torch.save(OptimizerPlan.read(directory).state_dict(version), directory / "optimizer.pt")
        # Cut off behind the first of these it is no longer known what there was to do, and `start` deletes it.
        for name in (_OTHERS, _PLAN):
            (directory / name).unlink(missing_ok=True)
            sync(directory)
        self._make_whole(step)


def _try(failure: str, act: Callable[..., Any], *arguments: Any) -> None:
    try:
        act(*arguments)
    except Exception as error:  # a thread cannot raise it to a caller, and training continues
        log.error("%s: %s", failure, error)
