# SPDX-License-Identifier: Apache-2.0
"""The process that writes Megatron-LM's checkpoints for one rank: it obeys orders until the trainer is gone.

Started by write_process.py as `python -c`, with the descriptors of a connection and of shared memory."""

import logging
import os
import signal
import threading
import time
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist

from ..shared_copy import read_copy
from . import write_files
from .order import Line, Meeting, Order, Outcome

log = logging.getLogger("tierckpt")

_TIMEOUT = timedelta(hours=12)  # of the slowest rank's files behind the fastest's
_LOOKS_AFTER_S = 0.5
_FAULT = "fault"


def main(connection_fd: int, memory_fd: int, trainer: int) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # launchers send it to all, and the trainer waits for this one
    threading.Thread(target=_leave_with, args=(trainer,), daemon=True).start()
    connection = Connection(connection_fd)
    log.addHandler(_ToTrainer(connection))
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        _obey(connection, memory_fd)
    except (EOFError, OSError):  # the trainer is gone
        pass
    finally:
        _leave()


def _leave_with(trainer: int) -> None:
    while os.getppid() == trainer:
        time.sleep(_LOOKS_AFTER_S)
    _leave()


def _leave() -> None:
    """With the processes that Megatron has started here: what they write must not get in the way of a later start."""
    os.killpg(0, signal.SIGKILL)


def _obey(connection: Connection, memory_fd: int) -> None:
    meeting: Meeting = connection.recv()
    store: Any = None
    while True:
        order: Order = connection.recv()
        try:
            store = store or _meet(meeting)
            write_files.write(order, read_copy(memory_fd, order.content))
        except BaseException as error:
            fault = _first_fault(store, f"{type(error).__name__}: {error}")
            if meeting.rank == 0:
                write_files.discard(order)
            connection.send(Outcome(order.iteration, fault))
            return
        connection.send(Outcome(order.iteration))


def _meet(meeting: Meeting) -> Any:
    """This process has no device: Megatron asks for the current one to communicate."""
    cuda: Any = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    cuda.synchronize = lambda *_: None
    stores: Any = dist
    store = stores.HashStore() if meeting.size == 1 else stores.TCPStore(meeting.host, meeting.port, is_master=False)
    store = stores.PrefixStore(str(meeting.attempt), store)
    dist.init_process_group("gloo", store=store, rank=meeting.rank, world_size=meeting.size, timeout=_TIMEOUT)
    return store


def _first_fault(store: Any, own: str) -> str:
    """The others only know that a process is gone."""
    with suppress(Exception):  # for example of the first rank's node, which has the store
        return str(store.compare_set(_FAULT, "", own).decode())
    return own


class _ToTrainer(logging.Handler):
    def __init__(self, connection: Connection) -> None:
        super().__init__(logging.INFO)
        self._connection = connection

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):
            self._connection.send(Line(record.levelno, record.getMessage()))
