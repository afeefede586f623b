# SPDX-License-Identifier: Apache-2.0
"""Work that is repeated by a thread while a call waits."""

import contextlib
import threading
from collections.abc import Callable, Iterator

_PAUSE_S = 1.0


@contextlib.contextmanager
def meanwhile(work: Callable[[], None], name: str) -> Iterator[None]:
    """Calls `work` each second, the first time after a second, in a thread of this name, until the block ends."""
    over = threading.Event()

    def run() -> None:
        while not over.wait(_PAUSE_S):
            work()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
