# SPDX-License-Identifier: Apache-2.0
"""Whether something holds on every rank, for threads that write in the background."""

from ..runtime.world import World, open_bootstrap

_TIMEOUT = 12 * 3600  # seconds, of the slowest rank's files behind the fastest's


class Agreement:
    """Called by one thread of each rank, in the same order: True on all ranks if all of them say so. It has connections
    of its own, since these messages must not mix with those of the training."""

    def __init__(self, world: World) -> None:
        """Collective."""
        self._bootstrap = open_bootstrap("agreement", timeout=_TIMEOUT) if world.size > 1 else None

    def __call__(self, here: bool) -> bool:
        if self._bootstrap is None:
            return here
        return all(byte == b"\1" for byte in self._bootstrap.allgather(bytes([here])))

    def close(self) -> None:
        self._bootstrap = None
