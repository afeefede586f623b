# SPDX-License-Identifier: Apache-2.0
"""What is logged about the checkpoints of a training: the library's own lines, and trouble with storage."""

import contextlib
import logging
import re
import time
from collections.abc import Sequence

from . import native
from .meanwhile import meanwhile

log = logging.getLogger("tierckpt")


def lines_meanwhile() -> contextlib.AbstractContextManager[None]:
    """For a call that may wait for minutes: writes the library's lines while it waits, and not only afterwards."""
    return meanwhile(lambda: native.log_lines(log), "tierckpt-log")


def few(names: Sequence[str]) -> str:
    """The first three of these names, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


class Notices:
    """Looks for news in calls that do some work anyway; a save that is not due does not look."""

    def __init__(self, client: native.Client) -> None:
        self._client = client
        self._cause: str | None = None

    def look(self) -> None:
        """Writes what is new."""
        native.log_lines(log)
        if self._client.is_open and self._client.rank == 0:  # each rank knows of the trouble of any node
            self._log_storage(self._client.health())

    def _log_storage(self, health: native.Health) -> None:
        cause = None if health.storage_ok else re.sub(r"\d+", "#", health.storage_text)
        if cause is not None and cause != self._cause:
            log.warning("nothing reaches storage since %s%s: %s", _clock(health.storage_since), _missing(health),
                        health.storage_text)
        elif cause is None and self._cause is not None:
            log.warning("storage works again")
        self._cause = cause


def _clock(seconds: float | None) -> str:
    return "an unknown time" if seconds is None else time.strftime("%H:%M:%S", time.localtime(seconds))


def _missing(health: native.Health) -> str:
    if not health.undrained_count:
        return ""
    return f" (steps {health.undrained_first} to {health.undrained_newest}, which only memory has)"
