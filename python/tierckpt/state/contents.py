# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint consists of, as init and the adapters describe it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from ..runtime import native
from .blobs import Blob
from .records import Record, RecordTable


def _nothing(*_arguments: object) -> None:
    pass


@dataclass(frozen=True)
class Contents:
    """What a checkpoint consists of. init creates it for plain PyTorch, and adapters for their frameworks."""

    records: list[Record]
    blobs: list[Blob]  # in the order in which they are put back, after the records
    check: Callable[[], object] = _nothing  # before each save; raises if there is state that was not registered
    loaded: Callable[[], object] = _nothing  # after the restore: recomputes what the framework derives from it
    registered: Callable[[native.Client, RecordTable], object] = _nothing  # after each registration; collective
    storage_format: str = "tierckpt"  # the value of this key that it was made for. With framework, saves end in memory,
                                      # and the adapter writes what goes to storage


Fence = Callable[[Callable[[], None]], Callable[[], None]]
"""Has a function (Checkpoint.fence) called right before the records change; returns a function that undoes this."""


def before_optimizer_step(optimizer: torch.optim.Optimizer) -> Fence:
    """The fence for records that only a torch optimizer changes."""
    return lambda fence: optimizer.register_step_pre_hook(lambda *_: fence()).remove
