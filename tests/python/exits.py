# SPDX-License-Identifier: Apache-2.0
"""A training that ends, in one of several ways, while its last snapshot waits for the agent: python exits.py WAY.
The configuration is read from standard input. Any change of the weights after the end makes them negative."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import torch
from torch import nn

import place  # noqa: F401 - sets the paths
import tierckpt

AGENT_STOPPED_S = 1.5
SPOILED_S = 4  # longer than the agent needs to continue and take the snapshot


def agent_of(config):
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if entry.name.isdigit() and words[0].endswith(b"tierckptd") and config["runtime_dir"].encode() in b" ".join(
                words):
            return int(entry.name)
    raise LookupError("no agent")


class Training:
    def __init__(self, config):
        self.model = nn.Linear(64, 64)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.checkpoint = tierckpt.init(model=self.model, optimizer=self.optimizer, config=config)
        self.itself = self  # so that only the garbage collector ends it

    def set(self, value):
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.fill_(value)

    def save_while_agent_is_stopped(self, config):
        self.checkpoint.load_checkpoint()
        self.set(1)
        self.checkpoint.save_checkpoint(1)
        self.checkpoint.wait("committed")
        agent = agent_of(config)
        os.kill(agent, signal.SIGSTOP)
        subprocess.Popen(["sh", "-c", f"sleep {AGENT_STOPPED_S}; kill -CONT {agent}"], start_new_session=True,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.set(2)
        assert self.checkpoint.save_checkpoint(2)


class Spoiler:
    """Overwrites freed memory, and leaves time for a thread that still reads it."""

    def __init__(self, tensors):
        self._tensors = tensors
        self._sleep = time.sleep

    def __del__(self):
        for tensor in self._tensors:
            tensor.fill_(-1)
        self._sleep(SPOILED_S)


def end(way, training):
    if way == "exception":
        raise ValueError("the training failed")
    if way == "sys.exit":
        sys.exit(3)
    if way == "ctrl-c":
        signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background jobs of a shell
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        time.sleep(60)
    if way == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
    if way == "os._exit":
        os._exit(4)
    assert way in ("end of the program", "garbage", "closed")


def main(way):
    global spoiler
    config = json.load(sys.stdin)
    training = Training(config)
    tensors = [parameter.data for parameter in training.model.parameters()]
    training.save_while_agent_is_stopped(config)
    if way == "garbage":
        del training
        gc.collect()
        Spoiler(tensors).__del__()
        return
    if way == "closed":
        training.checkpoint.close(job_done=False)
    spoiler = Spoiler(tensors)
    end(way, training)


if __name__ == "__main__":
    main(sys.argv[1])
