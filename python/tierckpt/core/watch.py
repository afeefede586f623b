# SPDX-License-Identifier: Apache-2.0
"""Torn copies are never sealed: a snapshot counts only if no tensor was written to while it was copied.

The known optimizers wait for the copy before their steps. Anything else that writes to a tensor meanwhile, such as
another optimizer, fill_ or an average of the weights, increments the version counter of the tensor. So the library does
not seal the snapshot until the counters were compared: by the training's own thread in its fence, or by a thread of
ours as soon as the copy is done."""

import logging
import threading
import weakref
from collections.abc import Callable

from .. import errors
from ..runtime import native
from ..runtime.notices import few
from ..state.records import Versions

log = logging.getLogger("tierckpt")

_LOOK_MS = 200


class Watch:
    """Compares the counters for one client, from its registration until it detaches."""

    def __init__(self, client: native.Client, versions: Versions) -> None:
        self._client = client
        self._versions = versions
        self._lock = threading.Lock()
        self._open: int | None = None  # the step of the snapshot that has to be confirmed
        self.gave_up = False
        """Whether the snapshot that was decided on last was discarded."""
        self._signal = _Signal()
        client.set_confirm(True)
        self._end = weakref.finalize(self, self._signal.end)
        self._thread = threading.Thread(target=_compare_each, args=(weakref.ref(self), self._signal),
                                        name="tierckpt-watch", daemon=True)
        self._thread.start()

    def begun(self, step: int) -> None:
        """A snapshot has begun, after Versions.note."""
        self._open = step
        self._signal.begun.set()

    def settle(self, step: int | None = None) -> None:
        """Confirms the snapshot that was begun last, or discards it, unless that was done before. With `step`: only if
        it is of that step. Its copy must be over or, for tensors on devices, fenced."""
        if self._open is None:
            return
        with self._lock:
            if self._open is None or step not in (None, self._open):
                return
            changed = self._versions.changed()
            self.gave_up = bool(changed)
            if changed:  # first: once it is confirmed, a wait ends with the error
                log.warning("a save is given up: %s. From now on %s copied inside the save call, which takes longer. "
                            "To have them copied in the background, pass every optimizer to init, and call "
                            "ckpt.fence() before anything else that changes them", _why_not(changed),
                            _they_are(changed))
            self._client.confirm(self._open, _why_not(changed) if changed else None)
            self._open = None  # last: None implies that the snapshot is sealed

    def look(self) -> bool:
        """Called by the thread. Returns whether there is still a snapshot to wait for."""
        try:
            step = None if self._open is None else self._client.await_copied(_LOOK_MS)
            if step is None:
                return False
            self.settle(step)  # the training may have saved the next step meanwhile, which is still being copied
        except errors.TimedOutError:
            return True
        except errors.Error as error:
            log.debug("the snapshot under way is left to the fence: %s", error)
        return False

    def stop(self) -> None:
        self._end()
        if threading.current_thread() is not self._thread:
            self._thread.join()


class _Signal:
    """The body of the thread. It keeps nothing else alive."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.ended = False

    def end(self) -> None:
        self.ended = True
        self.begun.set()


def _compare_each(watch: Callable[[], Watch | None], signal: _Signal) -> None:
    while True:
        signal.begun.wait()
        signal.begun.clear()
        while not signal.ended:
            here = watch()
            if here is None or not here.look():
                break
            del here
        here = None
        if signal.ended:
            return


def _why_not(changed: list[str]) -> str:
    return f"{few(changed)} changed while it was being copied, by something that did not wait for the copy"


def _they_are(changed: list[str]) -> str:
    return "it is" if len(changed) == 1 else "they are"
