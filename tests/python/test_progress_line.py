# SPDX-License-Identifier: Apache-2.0
"""What is shown while memory is allocated or a version is restored."""

import contextlib
import io
import json
import logging
import os
import pty
import re
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from unittest import mock

import pytest

from tierckpt.runtime import meanwhile, native, progress_line
from tierckpt.runtime.native import Progress


def progress(**changes):
    return Progress("restore", "getting the shards", 1_000_000_000, 4_000_000_000, 12.0, 0.0, True)._replace(**changes)


def test_the_text_says_what_how_much_how_fast_and_for_how_long():
    assert progress_line.text_of(progress(), 250e6) == (
        "tierckpt restore: getting the shards, 1.00 of 4.00 GB, 0.25 GB/s, 12 s")


def test_the_text_says_since_when_nothing_moves():
    assert progress_line.text_of(progress(still=31.0), None).endswith("12 s, without progress for 31 s")


def test_what_has_no_bytes_shows_none():
    assert progress_line.text_of(progress(what="waiting for the other ranks", done_bytes=0, total_bytes=0), None) == (
        "tierckpt restore: waiting for the other ranks, 12 s")


class Terminal(io.StringIO):
    def __init__(self):
        super().__init__()
        self.master, self.slave = pty.openpty()

    def fileno(self):
        return self.slave

    def isatty(self):
        return True


class Client:
    rank = 0

    def __init__(self, progress):
        self._progress = progress

    def progress(self):
        return self._progress


@pytest.fixture
def stderr(monkeypatch):
    monkeypatch.setattr(meanwhile, "_PAUSE_S", 0.01)
    return Terminal()


def shown_by(client, stderr):
    """By the time at which it has looked once."""
    looked, look = threading.Event(), progress_line._look

    def look_and_say(*arguments):
        look(*arguments)
        looked.set()

    with (mock.patch.object(progress_line, "_look", look_and_say), contextlib.redirect_stderr(stderr),
          progress_line.shown(client)):
        assert looked.wait(60)
    return stderr.getvalue()


def test_the_line_is_drawn_on_a_terminal_and_erased_at_the_end(stderr):
    drawn = shown_by(Client(progress()), stderr)
    assert "tierckpt restore: getting the shards, 1.00 of 4.00 GB, 12 s" in drawn
    assert drawn.endswith("\r\033[K")


def test_other_ranks_show_nothing(stderr):
    client = Client(progress())
    client.rank = 1
    assert shown_by(client, stderr) == ""


def test_show_progress_off_shows_nothing(stderr):
    assert shown_by(Client(progress(shown=False)), stderr) == ""


def test_without_a_terminal_nothing_is_shown(stderr):
    stderr.isatty = lambda: False
    assert shown_by(Client(progress()), stderr) == ""


def test_a_program_without_standard_error_goes_on():
    with contextlib.redirect_stderr(None), progress_line.shown(Client(progress())):
        pass


def test_a_terminal_that_is_gone_disturbs_nothing(stderr):
    os.close(stderr.slave)
    assert shown_by(Client(progress()), stderr) == ""


TRAINING = """
import json, sys
import torch
import tierckpt
model = torch.nn.Linear(3, 2)
checkpoint = tierckpt.init(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
                           config=json.loads(sys.argv[1]))
print("registered", flush=True)
sys.stdin.readline()
checkpoint.load_checkpoint()
print("restored", flush=True)
checkpoint.close(job_done=False)
"""


def agent_of(site):
    (pid,) = [pid for pid in site._pids() if Path(f"/proc/{pid}/comm").read_text() == "tierckptd\n"]
    return pid


def read_until(fd, pattern, seconds, text=""):
    deadline = time.monotonic() + seconds
    while not re.search(pattern, text):
        readable, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        assert readable, text
        text += os.read(fd, 4096).decode(errors="replace")
    return text


def test_a_restore_that_hangs_is_seen_on_the_terminal(site):
    """The agent is stopped, as if its node had no memory or processor left."""
    master, slave = pty.openpty()
    trainer = subprocess.Popen([sys.executable, "-c", TRAINING, json.dumps(site.config)], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=slave, text=True,
                               env={**os.environ, "PYTHONPATH": str(Path(progress_line.__file__).parents[2])})
    agent = None
    try:
        assert trainer.stdout.readline() == "registered\n"
        agent = agent_of(site)
        os.kill(agent, signal.SIGSTOP)
        trainer.stdin.write("\n")
        trainer.stdin.flush()
        shown = read_until(master, "without progress for", 60)
        assert "tierckpt restore: getting the shards, " in shown
        os.kill(agent, signal.SIGCONT)
        assert trainer.stdout.readline() == "restored\n"
        read_until(master, "\r\033\\[K$", 10, shown)
        assert trainer.wait(60) == 0
    finally:
        if agent is not None:
            os.kill(agent, signal.SIGCONT)
        trainer.kill()
        trainer.wait()
        os.close(master)
        os.close(slave)


def test_the_library_tells_of_the_call_that_another_thread_is_in(site):
    client = site_client(site)
    try:
        client.register()
        assert client.progress() is None
        agent = agent_of(site)
        os.kill(agent, signal.SIGSTOP)
        thread = threading.Thread(target=restore_nothing, args=(client,))
        thread.start()
        try:
            deadline = time.monotonic() + 30
            while (now := client.progress()) is None or now.what != "getting the shards":
                assert time.monotonic() < deadline, now
                time.sleep(0.01)
            assert (now.call, now.shown) == ("restore", True)
        finally:
            os.kill(agent, signal.SIGCONT)
            thread.join()
        assert client.progress() is None
    finally:
        client.detach(job_done=True)


def site_client(site):
    from tierckpt.runtime.settings import configuration
    from tierckpt.runtime.world import Oob
    return native.Client(**configuration(site.config, None), rank=0, world_size=1, oob=Oob())


def restore_nothing(client):
    from tierckpt import errors
    with pytest.raises(errors.NotFoundError):
        client.restore(native.NEWEST)


def test_every_line_of_the_library_is_written_meanwhile(monkeypatch, caplog):
    monkeypatch.setattr(meanwhile, "_PAUSE_S", 0.01)
    lines = iter(["one", "two"])
    monkeypatch.setattr(native, "log_lines", lambda log: [log.info("%s", line) for line in lines])
    caplog.set_level(logging.INFO, "tierckpt")
    with progress_line.shown(Client(None)):
        deadline = time.monotonic() + 10
        while len(caplog.records) < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert [record.getMessage() for record in caplog.records] == ["one", "two"]
