# SPDX-License-Identifier: Apache-2.0
"""What rank 0 shows while memory is allocated or a version is restored: a line on the terminal, or none. What the
library logs meanwhile is written, too."""

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from typing import TextIO

from . import native
from .meanwhile import meanwhile
from .notices import log

_STILL_S = 5.0
"""Without any progress for so long, the line says so."""


def text_of(progress: native.Progress, rate: float | None) -> str:
    """In words; the rate is in bytes per second."""
    parts = [f"{progress.call}: {progress.what}"]
    if progress.total_bytes:
        parts.append(f"{progress.done_bytes / 1e9:.2f} of {progress.total_bytes / 1e9:.2f} GB")
    if rate:
        parts.append(f"{rate / 1e9:.2f} GB/s")
    parts.append(f"{progress.age:.0f} s")
    if progress.still >= _STILL_S:
        parts.append(f"without progress for {progress.still:.0f} s")
    return "tierckpt " + ", ".join(parts)


class _Line:
    """On a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._drawn = False
        self._before: tuple[str, int, float] | None = None  # phase, bytes, time

    def _rate(self, progress: native.Progress) -> float | None:
        now, before = time.monotonic(), self._before
        self._before = (progress.what, progress.done_bytes, now)
        if before is None or before[0] != progress.what or progress.done_bytes <= before[1]:
            return None
        return (progress.done_bytes - before[1]) / (now - before[2])

    def draw(self, progress: native.Progress) -> None:
        text = text_of(progress, self._rate(progress))
        with contextlib.suppress(OSError, ValueError):  # the terminal is gone, or the stream is closed
            columns = os.get_terminal_size(self._stream.fileno()).columns or 80
            self._stream.write("\r\033[K" + text[:columns - 1])
            self._stream.flush()
            self._drawn = True

    def erase(self) -> None:
        if self._drawn:
            self._drawn = False
            with contextlib.suppress(OSError, ValueError):
                self._stream.write("\r\033[K")
                self._stream.flush()


def _terminal() -> TextIO | None:
    """Standard error, if it is one; it is None in a program without a console, and may be closed."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        return sys.stderr if sys.stderr.isatty() else None
    return None


def _look(client: native.Client, line: _Line | None) -> None:
    progress = client.progress() if line is not None else None
    if line is not None:
        line.erase()
    native.log_lines(log)
    if line is not None and progress is not None and progress.shown:
        line.draw(progress)


@contextlib.contextmanager
def shown(client: native.Client) -> Iterator[None]:
    """For a call that may wait for minutes."""
    terminal = _terminal() if client.rank == 0 else None
    line = None if terminal is None else _Line(terminal)
    try:
        with meanwhile(lambda: _look(client, line), "tierckpt-progress"):
            yield
    finally:
        if line is not None:
            line.erase()
