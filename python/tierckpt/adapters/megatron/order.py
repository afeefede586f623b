# SPDX-License-Identifier: Apache-2.0
"""What a trainer and the process that writes its files tell each other."""

from dataclasses import dataclass
from pathlib import Path

from ..shared_copy import Place
from .start import Start

PREFIX = "iter_"
UNFINISHED = f"tmp-{PREFIX}"


def directory_of(save: str, iteration: int) -> Path:
    return Path(save, f"{PREFIX}{iteration:07d}")


@dataclass(frozen=True)
class Meeting:
    """Where the processes of all ranks meet: a store of torch.distributed."""

    rank: int
    size: int
    host: str
    port: int
    attempt: int  # to find each other: those of the same number


@dataclass(frozen=True)
class Order:
    """One checkpoint, the same one on every rank."""

    save: str
    iteration: int
    token: str
    """Makes the name of the unfinished directory differ from those of other starts."""
    keep: int
    content: Place
    """Of an Unwritten, in the shared memory."""
    found: int | None = None
    """The iteration that the tracker file named when this start began, if the training has gone back to an earlier one.
    None: it has not, or has replaced the file since."""
    start: Start | None = None
    """Goes into the marker of the directory."""

    @property
    def directory(self) -> Path:
        return directory_of(self.save, self.iteration)

    @property
    def unfinished(self) -> Path:
        return Path(self.save, f"{UNFINISHED}{self.iteration:07d}-{self.token}")


@dataclass(frozen=True)
class Line:
    """For the log."""

    level: int
    text: str


@dataclass(frozen=True)
class Outcome:
    """Of an order. After a fault the process ends."""

    iteration: int
    fault: str | None = None
