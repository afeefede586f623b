# SPDX-License-Identifier: Apache-2.0
"""Files that a thread writes while training continues. Each of them is complete or does not exist.

A framework with files of its own says what is to be written and how. Here the data is copied, written under another
name, synced, and renamed. The file that declares a set of files complete is written when those of every rank are."""

import copy
import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from .. import errors

log = logging.getLogger("tierckpt")


_Storages = dict[tuple[torch.device, int, int], Any]
"""The copy of each storage, by the address of the storage."""


def copy_to_cpu(value: Any) -> Any:
    """A copy of the value, with its tensors in CPU memory. Tensors that share memory do so in the copy, too."""
    return _copied(value, {})


def _copied(value: Any, storages: _Storages) -> Any:
    if torch.is_tensor(value):
        return _copied_tensor(value.detach(), storages)
    if isinstance(value, dict):
        result = copy.copy(value)  # of its own type, with its attributes
        for key, item in value.items():
            result[key] = _copied(item, storages)
        return result
    if type(value) in (list, tuple):
        return type(value)(_copied(item, storages) for item in value)
    return copy.deepcopy(value)


def _copied_tensor(tensor: torch.Tensor, storages: _Storages) -> torch.Tensor:
    if tensor.layout != torch.strided:
        return tensor.to("cpu", copy=True)
    storage: Any = tensor.untyped_storage()
    place = (storage.device, storage.data_ptr(), storage.nbytes())
    if place not in storages:
        storages[place] = storage.clone() if storage.device.type == "cpu" else storage.cpu()
    return torch.empty(0, dtype=tensor.dtype).set_(storages[place], tensor.storage_offset(), tensor.size(),
                                                   tensor.stride())


def write_durably(path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
    """Calls `write` to write a file under another name, syncs it, and renames it."""
    partial = f"{path}.partial"
    write(partial)
    sync(partial)
    os.replace(partial, path)
    sync(Path(path).parent)


def make_directory(path: str | os.PathLike[str], exist_ok: bool = False) -> None:
    """Makes a directory, and its entry in the directory above durable."""
    os.makedirs(path, exist_ok=exist_ok)
    sync(Path(path).absolute().parent)


def sync(path: str | os.PathLike[str]) -> None:
    """Makes a file, or the entries of a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_files(directory: Path) -> None:
    """The directory and all that is in it."""
    for path in [directory, *directory.rglob("*")]:
        sync(path)


class BackgroundWriter:
    """One thread that does one thing after the other. A failure is logged, and the files that belong together are then
    not declared complete."""

    def __init__(self, agree: Callable[[bool], bool]) -> None:
        """`agree` is called by the thread, once or more for each `finish` of all ranks: it returns True on each rank if
        it was called with True on all."""
        self._agree = agree
        self._pool = ThreadPoolExecutor(1, "tierckpt-files")
        self._under_way: list[Future[Any]] = []
        self._whole = True

    def write(self, path: str | os.PathLike[str], write: Callable[[str], object]) -> None:
        """See write_durably."""
        self.do(os.fspath(path), lambda: write_durably(path, write))

    def do(self, what: str, act: Callable[[], None]) -> None:
        """Does something else that writes; a later `finish` waits for it."""
        self._under_way.append(self._pool.submit(self._do, what, act))

    def finish(self, what: str, done: Callable[[], None], parts: Sequence[Future[Any]] = ()) -> Future[Any]:
        """Calls `done` after everything before it, if that is durable on every rank and so are the `parts`, which were
        finished before. The result says whether that was so, and `done` succeeded, on every rank. Collective."""
        future = self._pool.submit(self._finish, what, done, parts)
        self._under_way.append(future)
        return future

    def _do(self, what: str, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception as error:  # of any kind: training continues
            self._whole = False
            log.error("%s was not written: %s", what, error)

    def _finish(self, what: str, done: Callable[[], None], parts: Sequence[Future[Any]]) -> bool:
        whole, self._whole = self._whole, True
        try:
            if not self._agree(whole and all(part.result() for part in parts)):
                log.error("%s is not complete: not every rank has written its files", what)
                return False
            return self._agree(_succeeds(what, done))  # a caller that waits finds it done, by any rank
        except Exception as error:
            log.error("%s was not finished: %s", what, error)
            return False

    @contextmanager
    def together(self, what: str, *stages: Callable[[], None],
                 parts: list[Future[Any]] | None = None) -> Iterator["BackgroundWriter"]:
        """What is done within the with-statement is complete as a whole or not at all. If it is complete, the thread
        calls each stage when the one before it is done on every rank. `parts` are what else has to be finished, and may
        grow within the with-statement. Collective."""
        self.wait()
        self._whole = True
        try:
            yield self
        except BaseException:
            self.fail()
            raise
        finally:  # the other ranks wait for this one's answer
            for stage in stages:
                parts = [self.finish(what, stage, parts or [])]

    def _fail(self) -> None:
        self._whole = False

    def fail(self) -> None:
        """What a later `finish` waits for was not done, by an error elsewhere."""
        self._under_way.append(self._pool.submit(self._fail))

    def wait(self, timeout: float | None = None) -> None:
        """Waits until nothing is left to do. Raises TimedOutError after `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while self._under_way:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            try:
                self._under_way[0].result(left)
            except FutureTimeoutError:
                raise errors.TimedOutError(f"files are still being written after {timeout:g} s") from None
            self._under_way.pop(0)

    def settle(self) -> bool:
        """Waits. Returns whether everything since the last finish or settle is durable."""
        self.wait()
        whole, self._whole = self._whole, True
        return whole


def _succeeds(what: str, done: Callable[[], None]) -> bool:
    try:
        done()
        return True
    except Exception as error:
        log.error("%s was not finished: %s", what, error)
        return False
