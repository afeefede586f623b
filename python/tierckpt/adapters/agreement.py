# SPDX-License-Identifier: Apache-2.0
"""Whether something holds on every rank, for threads that write in the background."""

from datetime import timedelta

import torch
import torch.distributed as dist

from ..runtime.world import World

_TIMEOUT = timedelta(hours=12)  # of the slowest rank's files behind the fastest's


class Agreement:
    """Called by one thread of each rank, in the same order: True on all ranks if all of them say so. It has a process
    group of its own, since these messages must not mix with those of the training."""

    def __init__(self, world: World) -> None:
        """Collective, as close is."""
        self._group = dist.new_group(backend="gloo", timeout=_TIMEOUT) if world.size > 1 else None

    def __call__(self, here: bool) -> bool:
        if self._group is None:
            return here
        everywhere = torch.tensor([int(here)])
        dist.all_reduce(everywhere, op=dist.ReduceOp.MIN, group=self._group)
        return bool(everywhere.item())

    def close(self) -> None:
        group, self._group = self._group, None
        if group is not None:
            dist.destroy_process_group(group)
