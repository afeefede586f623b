# SPDX-License-Identifier: Apache-2.0
"""A process group of our own, for collectives in the background."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import torch.distributed as dist

_own: tuple[Any, dist.ProcessGroup] | None = None  # the default process group, and the one that was made beside it

_LAZY = "TORCH_GLOO_LAZY_INIT"  # torch 2.8 and newer; older ones ignore it


@contextlib.contextmanager
def connected_when_used() -> Iterator[None]:
    """For the creation of gloo groups: two ranks connect only when they exchange something, where gloo otherwise
    connects each rank with all others. What the user has set for torch counts."""
    given = os.environ.get(_LAZY)
    if given is None:
        os.environ[_LAZY] = "1"
    try:
        yield
    finally:
        if given is None:
            del os.environ[_LAZY]


def own_group() -> dist.ProcessGroup | None:
    """All ranks, over gloo: a save in the background must not mix its messages with those of the training. None if
    there are no other ranks, or no gloo. Collective the first time.

    For torch.distributed.checkpoint alone: its gather, scatter and broadcast need a ProcessGroup, and the library's
    bootstrap, which connects each rank with a few others, has an allgather only."""
    global _own
    if not (dist.is_available() and dist.is_initialized() and dist.is_gloo_available()) or dist.get_world_size() == 1:
        return None
    if _own is None or _own[0] is not dist.group.WORLD:
        with connected_when_used():
            _own = (dist.group.WORLD, dist.new_group(backend="gloo"))
    return _own[1]
