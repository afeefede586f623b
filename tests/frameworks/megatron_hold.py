# SPDX-License-Identifier: Apache-2.0
"""Lets the write of one iteration of Megatron-LM, $TEST_HOLD_AT, go as a test wants it. By the name of the file
$TEST_HOLD, when everything is written, and the directory does not have its name yet:

    hold   it waits until this file exists; <file>.<iteration> says that it waits
    fail   it fails on rank 1
    die    the process of rank 1 dies
"""

import errno
import os
import signal
import time
from pathlib import Path

import place  # noqa: F401 - sets the paths


def holds():
    return "TEST_HOLD" in os.environ


def iteration():
    return int(os.environ["TEST_HOLD_AT"])


def _go():
    return Path(os.environ["TEST_HOLD"])


def _waits():
    return _go().with_name(f"{_go().name}.{iteration()}")


def _wait_for(path):
    deadline = time.monotonic() + 200
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not appear"
        time.sleep(0.02)


def is_held():
    return holds() and _go().name == "hold"


def wait_until_held():
    _wait_for(_waits())


def release():
    _go().touch()


def install():
    """In the process that writes."""
    from tierckpt.adapters.megatron import write_files

    stage, act = ("publish", _wait) if is_held() else ("sync_own", _fail)
    original = getattr(write_files, stage)

    def changed(order):
        if order.iteration == iteration():
            act()
        original(order)

    setattr(write_files, stage, changed)


def _wait():
    _waits().touch()
    _wait_for(_go())


def _fail():
    import torch.distributed as dist

    if dist.get_rank() == 1 and _go().name == "fail":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    if dist.get_rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
