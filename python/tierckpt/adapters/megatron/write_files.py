# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM's checkpoints, written by a process of their own for each rank.

These processes have a process group, over gloo. So Megatron's own code writes, with its collectives, while the training
uses its groups. A directory has another name until it is complete and durable on all ranks."""

import contextlib
import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ... import errors
from ..background_writer import make_directory, sync, sync_files
from ..marked import delete, delete_old, empty_trash, is_marked, mark
from .order import PREFIX, UNFINISHED, Order
from .tracker import track, tracked
from .unwritten import SHARDED, Unwritten

log = logging.getLogger("tierckpt")


def write(order: Order, content: Unwritten) -> None:
    """Collective. Raises on every rank if it fails on one."""
    if _agreed(order, lambda: _begin(order)):
        return
    if content.sharded is not None:
        _write_sharded(order.unfinished, content)
    else:
        _agreed(order, lambda: _write_files(order, content.files))
    _agreed(order, lambda: sync_own(order))
    _agreed(order, lambda: publish(order))
    if dist.get_rank() == 0:
        _delete_old(order)


def _agreed(order: Order, act: Any) -> Any:
    """What the first rank has returned. Its error is the one of all, if it has one."""
    fault, result = None, None
    try:
        result = act()
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"
    everywhere: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everywhere, (fault, result))
    for rank, (of_rank, _) in enumerate(everywhere):
        if of_rank is not None:
            raise errors.IoError(f"rank {rank}: {of_rank}")
    return everywhere[0][1]


def _begin(order: Order) -> bool:
    """Whether there is nothing to do, since Megatron has saved the same by itself."""
    if dist.get_rank() != 0:
        return False
    if tracked(order.save) == order.iteration != order.found and order.directory.is_dir():
        return True
    delete_unfinished(Path(order.save))
    if order.directory.is_dir() and not is_marked(order.directory):
        raise errors.IoError(f"{order.directory} is there already, and Tierckpt has not made it: move it away if it is "
                             "not needed")
    make_directory(order.unfinished)
    mark(order.unfinished, "" if order.start is None else json.dumps(order.start))
    return False


def delete_unfinished(save: Path) -> None:
    """What other starts have left, too."""
    empty_trash(save)
    for left in save.glob(f"{UNFINISHED}*"):
        if is_marked(left):
            delete(left, "a save that was cut off")
        else:
            with contextlib.suppress(OSError):  # it was cut off before anything was in it
                left.rmdir()


def _write_sharded(directory: Path, content: Unwritten) -> None:
    """As Megatron saves without --async-save."""
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing.strategies.torch import TorchDistSaveShardedStrategy

    assert content.sharded is not None
    strategy = TorchDistSaveShardedStrategy(SHARDED, 1, thread_count=content.threads)
    # The trainers have prepared what all ranks have in common: comparing it once more would compare their arguments.
    dist_checkpointing.save(checkpoint_dir=str(directory), sharded_strategy=strategy,
                            preprocess_common_before_consistancy_check=lambda _common: {}, **content.sharded)


def _write_files(order: Order, files: dict[str, Any]) -> None:
    for name, value in files.items():
        path = order.unfinished / Path(name).relative_to(order.directory)
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(value, path)
        sync(path)


def sync_own(order: Order) -> None:
    """All other ranks have synced what they have written: Megatron does it, too."""
    if dist.get_rank() == 0:
        sync_files(order.unfinished)


def publish(order: Order) -> None:
    if dist.get_rank() != 0:
        return
    if order.directory.exists():
        delete(order.directory, "saved once more")
    os.rename(order.unfinished, order.directory)
    sync(Path(order.save))
    track(order.save, order.iteration, order.found)


def _delete_old(order: Order) -> None:
    """What cannot be deleted stays; the new one is there."""
    try:
        current = tracked(order.save)
        if current:
            delete_old(Path(order.save), PREFIX, order.keep, current)
    except (OSError, errors.Error) as error:
        log.warning("old checkpoints could not be deleted: %s", error)


def discard(order: Order) -> None:
    """After a failure. What cannot be deleted now is deleted by a later save or start."""
    shutil.rmtree(order.unfinished, ignore_errors=True)
