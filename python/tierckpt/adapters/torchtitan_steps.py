# SPDX-License-Identifier: Apache-2.0
"""The directories step-N from which torchtitan's own manager resumes: the files of published versions, as hard links.

A thread of rank 0 keeps them up to date: there is one for each version, and it goes with its version."""

import logging
import os
import re
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait

from .. import errors
from . import dcp_directory

log = logging.getLogger("tierckpt")

_VERSION, _STEP = re.compile(r"v0*(\d+)\.t(\d+)"), re.compile(r"step-(\d+)")
_REMOVED = ".tierckpt-gone-"
_STORAGE_S = 20.0
_PRUNED_S = 3.0


class StepDirectories:
    """Of one job, in one folder of torchtitan. What torchtitan itself has written there stays. `keep` is the number of
    versions that the agents keep, 0: all."""

    def __init__(self, folder: str, save_dir: str, job: str, keep: int) -> None:
        self._folder, self._job, self._versions, self._keep = folder, job, os.path.join(save_dir, job), keep
        self._surplus = False  # the agents have yet to delete a version
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="tierckpt-steps")
        self._last: Future[None] | None = None
        self._published = 0
        self._warned = False

    def look(self, published_step: int) -> None:
        """Call it after each step: updates the directories when another step is published. Returns at once."""
        if published_step != self._published:
            self._published = published_step
            self.update()

    def update(self) -> None:
        """Returns at once."""
        self._last = self._pool.submit(self._update)

    def settle(self) -> None:
        """Updates them, and waits for that, as long as storage may take, and for the agents, which delete what is too
        old after they have published."""
        deadline = time.monotonic() + _PRUNED_S
        while True:
            self.update()
            if self._last is not None and wait([self._last], _STORAGE_S).not_done:
                log.warning("%s: storage does not answer, so that step-N may be missing for the last published "
                            "versions. The next start of this training makes them", self._folder)
                return
            if not self._surplus or time.monotonic() > deadline:
                return
            time.sleep(0.1)

    def close(self) -> None:
        self.settle()
        self._pool.shutdown(wait=False)

    def _update(self) -> None:
        try:
            versions = self._found()
            self._surplus = 0 < self._keep < len(versions)
            for step, (_, path) in versions.items():
                self._make(step, path)
            self._remove(versions)
        except (errors.Error, OSError) as error:
            if not self._warned:
                log.warning("%s: step-N cannot be made of a published version, so that torchtitan's own manager does "
                            "not find it: %s", self._folder, error)
            self._warned = True

    def _found(self) -> dict[int, tuple[int, str]]:
        """By step, the term and the directory of its newest version that has a .metadata."""
        found: dict[int, tuple[int, str]] = {}
        for name in os.listdir(self._versions):
            match, path = _VERSION.fullmatch(name), os.path.join(self._versions, name)
            if match and os.path.isfile(os.path.join(path, ".metadata")):
                step, term = int(match[1]), int(match[2])
                found[step] = max(found.get(step, (0, "")), (term, path))
        return found

    def _make(self, step: int, version: str) -> None:
        path = os.path.join(self._folder, f"step-{step}")
        if dcp_directory.is_of_torch(path) or dcp_directory.version_at(path) == dcp_directory.version_at(version):
            return
        try:
            dcp_directory.place(version, path)
        except errors.IoError:
            if os.path.isdir(version):
                raise
            # It was pruned meanwhile.

    def _remove(self, versions: dict[int, tuple[int, str]]) -> None:
        for name in os.listdir(self._folder):
            path, match = os.path.join(self._folder, name), _STEP.fullmatch(name)
            if name.startswith(_REMOVED):
                shutil.rmtree(path)  # by a process that was killed
            elif match and int(match[1]) not in versions and self._is_ours(path):
                gone = os.path.join(self._folder, _REMOVED + match[1])  # torchtitan takes any name with step-N
                os.rename(path, gone)
                shutil.rmtree(gone)

    def _is_ours(self, path: str) -> bool:
        found = dcp_directory.version_at(path)
        return found is not None and found[0] == self._job and not dcp_directory.is_of_torch(path)
