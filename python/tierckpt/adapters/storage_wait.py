# SPDX-License-Identifier: Apache-2.0
"""Waits for storage, but only while storage works."""

import time
from collections.abc import Callable

from .. import errors
from ..core.checkpoint import Checkpoint

_SLICE_S = 0.5


def trouble_of(checkpoint: Checkpoint) -> str | None:
    """Why nothing reaches storage at the moment, None if no trouble is known."""
    health = checkpoint.health()
    if not health.storage_ok:
        return health.storage_text
    if not health.agent_connected:
        return health.agent_text
    return health.protection_text if health.node_lost else None


def wait_while_healthy(checkpoint: Checkpoint, done: Callable[[float], bool], timeout: float) -> None:
    """Calls done(seconds), which waits at most that long, until it returns true. Raises TimedOutError after `timeout`
    seconds, and IoError as soon as there is trouble with storage, since training continues without it."""
    deadline = time.monotonic() + timeout
    while not done(min(_SLICE_S, max(0.0, deadline - time.monotonic()))):
        trouble = trouble_of(checkpoint)
        if trouble is not None:
            raise errors.IoError(trouble)
        if time.monotonic() >= deadline:
            raise errors.TimedOutError(f"it took longer than {timeout:g} s")


def is_drained(checkpoint: Checkpoint, step: int) -> Callable[[float], bool]:
    """For wait_while_healthy: whether this step is on storage."""
    def done(seconds: float) -> bool:
        try:
            checkpoint.wait("drained", step, seconds)
        except errors.TimedOutError:
            return False
        return True

    return done
