# SPDX-License-Identifier: Apache-2.0
"""Adapters wait for slow storage, but not for broken storage."""

import pytest

from tierckpt import IoError, TimedOutError
from tierckpt.adapters.storage_wait import is_drained, wait_while_healthy
from tierckpt.runtime import native


class Checkpoint:
    def __init__(self, drained_after, trouble=""):
        self.waits = 0
        self.drained_after = drained_after
        self.trouble = trouble

    def wait(self, stage, step, timeout):
        self.waits += 1
        if self.waits <= self.drained_after:
            raise TimedOutError(f"step {step} is not {stage}")

    def health(self):
        return native.Health(True, False, not self.trouble, None, None, None, 0, 0, 0, False, "", self.trouble, "")


def test_a_slow_storage_is_waited_for():
    checkpoint = Checkpoint(drained_after=3)
    wait_while_healthy(checkpoint, is_drained(checkpoint, 5), timeout=600)
    assert checkpoint.waits == 4


def test_a_broken_storage_is_not_waited_for():
    checkpoint = Checkpoint(drained_after=10**9, trouble="/save: Stale file handle")
    with pytest.raises(IoError, match="/save: Stale file handle"):
        wait_while_healthy(checkpoint, is_drained(checkpoint, 5), timeout=600)
    assert checkpoint.waits == 1


def test_waiting_ends():
    checkpoint = Checkpoint(drained_after=10**9)
    with pytest.raises(TimedOutError, match="longer than 0 s"):
        wait_while_healthy(checkpoint, is_drained(checkpoint, 5), timeout=0)
