# SPDX-License-Identifier: Apache-2.0
"""The saves of a checkpoint: the state that each takes, and its outcome."""

import contextlib
import logging
import operator
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import SupportsIndex

from .. import errors
from ..runtime import native
from ..runtime.notices import Notices, lines_meanwhile
from ..runtime.settings import FRAMEWORK
from ..runtime.world import World
from ..state.blobs import BlobTable
from ..state.contents import Contents
from ..state.records import RecordTable

log = logging.getLogger("tierckpt")

_KNOWN_WITHIN_S = 0.3  # once
_SETTLED_WITHIN_MS = 10_000


@dataclass(frozen=True, slots=True)
class SaveResult:
    """The outcome of a call that saves. It is true if a save was started, so `if ckpt.save_checkpoint_if_needed(step)`
    works. A save that was started may still be discarded in the background: Checkpoint.wait reports that.
    dataclasses.asdict(result) is ready for JSON."""

    state: str
    """"started", "skipped" (it was due or requested, and `reason` says why it was not made) or "not due"."""
    step: int | None = None
    reason: str | None = None

    @property
    def started(self) -> bool:
        return self.state == "started"

    @property
    def skipped(self) -> bool:
        return self.state == "skipped"

    def __bool__(self) -> bool:
        return self.state == "started"

    def __repr__(self) -> str:
        step = "" if self.step is None else f" step {self.step}"
        reason = "" if self.reason is None else f": {self.reason}"
        return f"<SaveResult{step} {self.state}{reason}>"


NOT_DUE = SaveResult("not due")


def whole_step(step: SupportsIndex) -> int:
    """The step as an int; numpy's integers and tensors of one integer are accepted. Raises InvalidArgumentError."""
    try:
        number = operator.index(step)
    except (TypeError, ValueError):
        raise errors.InvalidArgumentError(f"a step must be a whole number, and this is a {type(step).__name__}: "
                                          f"{step!r:.80}") from None
    if not 0 <= number < native.NEWEST:
        raise errors.InvalidArgumentError(f"step {number} cannot be saved: steps count from 1")
    return number


def step_to_load(step: SupportsIndex) -> int:
    """The number of a step that may have been saved. Raises InvalidArgumentError."""
    number = whole_step(step) if not isinstance(step, int) or step >= 0 else step
    if number < 1:
        raise errors.InvalidArgumentError(
            f"step {number} was never saved: steps count from 1; load_checkpoint() without a "
            "step loads the newest")
    return number


class Saving:
    """The saves of one registration, for Checkpoint alone. A save that cannot be made is skipped, and training
    continues; after a load that failed while it copied it must not, so each save raises CorruptError."""

    def __init__(self, client: native.Client, contents: Contents, records: RecordTable, blobs: BlobTable,
                 world: World, notices: Notices) -> None:
        self._client = client
        self._contents = contents
        self._records = records
        self._blobs = blobs
        self._world = world
        self._notices = notices
        self._memory_only = contents.storage_format == FRAMEWORK  # the adapter writes what goes to storage
        self._may_wait_s = _KNOWN_WITHIN_S
        self._load_missed = True  # nothing was loaded, and it is not known yet whether something could have been
        self.last_saved: int | None = None
        self.last_failed: errors.Error | None = None
        """Why the last save_last did not bring its step to storage."""

    def goes_on(self, before: "Saving") -> None:
        """After a registration in another layout."""
        self._load_missed, self._may_wait_s = before._load_missed, before._may_wait_s

    def settle(self) -> None:
        """Waits until the outcome of the last save is known. After that tensors and layout may change."""
        self._client.fence()
        if self.last_saved is not None:
            with contextlib.suppress(errors.Error):  # it was discarded, or its outcome takes long
                self._client.wait(self.last_saved, native.STAGES["committed"], _SETTLED_WITHIN_MS)

    def loaded(self) -> None:
        """A load has put other contents into the blobs, and other steps follow."""
        self._load_missed = False
        self.last_saved = self.last_failed = None

    def if_needed(self, step: SupportsIndex) -> SaveResult:
        if type(step) is not int or not 0 <= step < native.NEWEST:
            step = whole_step(step)
        if self._client.save_due(step):
            if self._memory_only:
                return self._save(step, lambda: self._client.snapshot(step, native.SAVE_MEMORY))
            return self._save(step, lambda: self._client.save_if_needed(step))
        self._client.save_if_needed(step)  # it learns how long a step takes
        return NOT_DUE

    def explicit(self, step: SupportsIndex, to_storage: bool) -> SaveResult:
        step = whole_step(step)
        flags = native.SAVE_STORAGE if to_storage and not self._memory_only else native.SAVE_MEMORY
        return self._save(step, lambda: self._client.snapshot(step, flags))

    def skip(self, step: SupportsIndex, obstacle: str) -> SaveResult:
        """For a step that cannot be saved, whatever the state is."""
        step = whole_step(step)
        if self._client.is_open:
            self._client.skip(step, obstacle)
            self._notices.look()
        return SaveResult("skipped", step, obstacle)

    def last(self, step: SupportsIndex, timeout: float) -> None:
        step = whole_step(step)
        self._client.fence()
        if self._client.watch is not None and self._client.watch.gave_up:
            self.last_saved = None  # nothing is left of that save
        self._agree(step, self._take() if step != self.last_saved else None)
        try:
            with lines_meanwhile():
                self._client.save_last(step, int(timeout * 1000))
        except errors.Error as error:
            self.last_failed = error
            raise
        finally:
            self._notices.look()
        self.last_saved, self.last_failed = step, None

    def _agree(self, step: int, obstacle: str | None) -> None:
        """All ranks raise if one cannot save: the others would wait for it. Collective."""
        for rank, of_rank in enumerate(self._world.gather(obstacle)):
            if of_rank is not None:
                self.last_failed = errors.CanceledError(f"step {step} cannot be saved: rank {rank}: {of_rank}")
                raise self.last_failed

    def _save(self, step: int, begin: Callable[[], bool]) -> SaveResult:
        obstacle = self._take()
        if self._load_missed:
            self._warn_of_missed_load()
        try:
            if obstacle is None or self._client.health().records_torn:  # then it raises
                obstacle = self._begin(begin)
            else:
                self._client.skip(step, obstacle)
        finally:
            self._notices.look()
        if obstacle is not None:
            return SaveResult("skipped", step, obstacle)
        self.last_saved = step
        return SaveResult("started", step)

    def _begin(self, begin: Callable[[], bool]) -> str | None:
        """Why the save was not started, None if it was."""
        try:
            return None if begin() else self._client.errmsg()
        except errors.BusyError as error:
            return str(error)

    def _take(self) -> str | None:
        """Takes the state as it is now for the next snapshot. Returns why that cannot be done, None if it was done."""
        self._records.refuse_capture()
        self._records.tell_streams(self._client)
        self._client.fence()  # of the save before, if no optimizer step came in between
        try:
            self._contents.check()
            self._records.refresh(self._client)
            self._blobs.take(self._client)
            self._records.fill()
            self._records.versions.note()
        except errors.Error as error:
            return str(error)
        except Exception as error:  # for example from a user's state_dict(): no reason to end the training
            log.debug("the state cannot be taken for a save", exc_info=True)
            return f"{type(error).__name__}: {error}"
        return None

    def _warn_of_missed_load(self) -> None:
        """The saves of a run that has not loaded anything replace the existing versions, which is seldom intended."""
        version = self._restorable()
        self._load_missed = version is None and self._client.stats().committed_step == 0
        if version is not None and self._client.rank == 0 and self._client.stats().committed_step == 0:
            log.warning("step %d (term %d) of this job could have been loaded, and was not: what is saved from now on "
                        "takes its place. Call load_checkpoint() before training; or give a fresh start a job name or "
                        "a save_dir of its own", version.step, version.term)

    def _restorable(self) -> native.Version | None:
        """The version that this run could have loaded, if any. The agents begin to look for it when they are asked."""
        deadline = time.monotonic() + self._may_wait_s
        self._may_wait_s = 0.0
        while True:
            try:
                return self._client.query()
            except errors.BusyError:
                if time.monotonic() > deadline:
                    return None
            except errors.Error:
                return None
            time.sleep(0.005)
