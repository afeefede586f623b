# SPDX-License-Identifier: Apache-2.0
"""Process trees: who is below a process, and ending them all."""

import os
import signal
import time


def _parents():
    """Process -> its parent, of everything that runs now."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                pass  # it ended meanwhile
    return parents


def below(root):
    """All processes under root, without root."""
    children = {}
    for pid, parent in _parents().items():
        children.setdefault(parent, []).append(pid)
    found, todo = [], [root]
    while todo:
        fresh = children.get(todo.pop(), [])
        found += fresh
        todo += fresh
    return found


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (OSError, IndexError):
        return False


def send(pids, number):
    """Signals those that still run."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def kill_tree(popen, timeout=10):
    """kill -9 of everything below the process, then of itself: it is the subreaper, so nothing escapes meanwhile.
    Returns how many were killed."""
    killed = set()
    empty = 0
    deadline = time.monotonic() + timeout
    while popen.poll() is None and time.monotonic() < deadline:
        found = {pid for pid in below(popen.pid) if alive(pid)}
        # A child whose parent died during the search is not found, but in the next one it is a child of the subreaper.
        empty = 0 if found else empty + 1
        if empty == 2:
            break
        send(found, signal.SIGKILL)
        killed |= found
        time.sleep(0.01)
    popen.kill()
    popen.wait()
    return len(killed) + 1
