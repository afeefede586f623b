# SPDX-License-Identifier: Apache-2.0
"""A temporary directory that is removed even if its process is killed: the next process removes it."""
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PREFIX = "tierckpt-resume-"
_YOUNG_S = 60  # its maker may not have locked it yet


def _lock(path: str) -> int:
    """A descriptor that holds the lock until it is closed, at the latest by the end of the process. Raises OSError if
    another process has the lock."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def _is_left_over(entry: os.DirEntry[str]) -> bool:
    if not entry.name.startswith(_PREFIX) or not entry.is_dir(follow_symlinks=False):
        return False
    status = entry.stat(follow_symlinks=False)
    return status.st_uid == os.getuid() and status.st_mtime < time.time() - _YOUNG_S


def _sweep() -> None:
    with os.scandir(tempfile.gettempdir()) as entries:
        for entry in entries:
            try:
                fd = _lock(entry.path) if _is_left_over(entry) else None
            except OSError:
                continue  # it is in use, or was just removed
            if fd is not None:
                shutil.rmtree(entry.path, ignore_errors=True)
                os.close(fd)


@contextmanager
def resume_directory() -> Iterator[str]:
    """A directory for this process; those that killed processes left behind are removed."""
    _sweep()
    path = tempfile.mkdtemp(prefix=_PREFIX)
    fd = _lock(path)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(fd)
