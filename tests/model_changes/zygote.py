# SPDX-License-Identifier: Apache-2.0
"""Forks a trainee for each line of JSON that it reads, so that PyTorch is imported once. Prints "began PID" and, when
one has ended, "ended PID STATUS" (as in subprocess: negative for a signal)."""

import json
import os
import sys
import threading

import torch  # noqa: F401  imported for the children

import trainee


def begin(task):
    pid = os.fork()
    if pid == 0:
        out = os.open(task["output"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        return task
    print(f"began {pid}", flush=True)
    threading.Thread(target=wait, args=(pid,)).start()
    return None


def wait(pid):
    _, status = os.waitpid(pid, 0)
    print(f"ended {pid} {os.waitstatus_to_exitcode(status)}", flush=True)


def next_task():
    for line in sys.stdin:
        if task := begin(json.loads(line)):
            return task
    return None


mine = next_task()
if mine:  # a child: from here on, a separate program with its own exit status
    trainee.main(mine)
