# SPDX-License-Identifier: Apache-2.0
"""What processes hold in memory and have written, as the kernel counts it."""

import contextlib
import os
import pathlib
import threading

PROC = pathlib.Path("/proc")
INTERVAL_S = 0.02


def _fields(path) -> dict:
    """The lines "name: number ..." of a file of /proc."""
    pairs = (line.split(":", 1) for line in path.read_text().splitlines() if ":" in line)
    return {name: int(rest.split()[0]) for name, rest in pairs if rest.split() and rest.split()[0].isdigit()}


def with_children(pids) -> set:
    """These processes and all that they have started, directly or through others."""
    parents = {}
    for entry in PROC.iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit():
                parents[int(entry.name)] = _fields(entry / "status")["PPid"]
    found = set(pids)
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _shared_files(pid) -> dict:
    """Bytes of each piece of shared memory that the process has open, mapped or not, by device and inode."""
    found = {}
    for entry in (PROC / str(pid) / "fd").iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(entry).startswith(("/memfd:", "/dev/shm/")):
                status = entry.stat()
                found[status.st_dev, status.st_ino] = status.st_blocks * 512
    return found


def memory(pids) -> int:
    """Bytes of private and shared memory. Shared memory that is allocated, but not mapped, appears only among the open
    files, and that whose file is closed only among the mappings, so the greater sum of the two is taken."""
    private = mapped = 0
    files = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = _fields(PROC / str(pid) / "smaps_rollup")
            private += fields["Pss_Anon"] * 1024
            mapped += fields["Pss_Shmem"] * 1024
            files.update(_shared_files(pid))
    return private + max(mapped, sum(files.values()))


def written(pids) -> int:
    """Bytes that these processes have caused to be written to storage, also if they are still in the page cache."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            total += _fields(PROC / str(pid) / "io")["write_bytes"]
    return total


class Peak:
    """The most memory that the processes held while it ran. They are looked up each time: some are started late."""

    def __init__(self, find):
        self._find, self._most, self._ended = find, 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self):
        while not self._ended.wait(INTERVAL_S):
            self._most = max(self._most, memory(self._find()))

    def stop(self):
        """May be called several times."""
        self._ended.set()
        self._thread.join()

    def end(self) -> int:
        self.stop()
        return max(self._most, memory(self._find()))
