# SPDX-License-Identifier: Apache-2.0
"""Agents and supervisors whose runtime directories lie below one directory, and the programs that they are started from."""

import os
import signal
import time
from pathlib import Path

_PROGRAMS = ("runtime/agent/tierckptd", "runtime/agent/tierckpt-supervisor", "runtime/cli/tierckpt")
_GONE_S = 30


def programs(build, work):
    """A new directory of them, for TIERCKPT_BIN_DIR."""
    directory = work / "bin"
    directory.mkdir()
    for program in _PROGRAMS:
        os.symlink(build / program, directory / Path(program).name)
    return directory


def kill_all(directory):
    """Of all nodes below it, or of the one that it belongs to, at once, and so their memory is lost. Returns how many
    processes that were."""
    deadline, killed = time.monotonic() + _GONE_S, set()
    while pids := daemons(directory):
        if time.monotonic() > deadline:
            raise TimeoutError(f"of {directory}, these processes are alive {_GONE_S} s after SIGKILL: {pids}")
        killed.update(pids)
        for number in (signal.SIGSTOP, signal.SIGKILL):  # none starts the other one again meanwhile
            for pid in pids:
                send(pid, number)
        time.sleep(0.02)
    return len(killed)


def send(pid, number):
    """A signal, to a process that may be gone. Returns whether it was still there."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def daemons(directory, name="tierckpt"):
    """The pids of those whose command line has the directory or something in it. Their names begin with `name`."""
    marks, found = (os.fsencode(directory) + b"/", os.fsencode(directory) + b"\0"), []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            command = Path("/proc", entry, "cmdline").read_bytes()
            if any(mark in command for mark in marks) and \
                    Path("/proc", entry, "comm").read_text(encoding="utf-8").startswith(name):
                found.append(int(entry))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found
