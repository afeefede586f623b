# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job, and the allgather by which the library reaches them over torch.distributed."""

import ctypes
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from .. import errors
from .native import ALLGATHER

_T = TypeVar("_T")

Gather = Callable[[list[torch.Tensor], torch.Tensor], object]
"""Puts the bytes of every rank, the second argument, into the tensors of the first."""


class Oob:
    """The callback of tck_oob_t. An exception may not pass through C: it is kept here and raised again afterwards."""

    def __init__(self, world_size: int = 1, gather: Gather | None = None) -> None:
        """`gather(parts, mine)` puts every rank's bytes into the tensors `parts`; None if there is only one rank."""
        self._world_size = world_size
        self._gather = gather
        self._raised: BaseException | None = None
        self.callback = ALLGATHER(self._allgather) if gather else None

    def _allgather(self, _ctx: int | None, source: int, target: int, length: int) -> int | None:
        try:
            if length > 0 and self._gather is not None:
                parts = _bytes_at(target, length * self._world_size).view(self._world_size, length)
                self._gather(list(parts.unbind(0)), _bytes_at(source, length))
            return 0
        except BaseException as error:  # reraise() passes it to the caller
            self._raised = error
            return 1

    def reraise(self) -> None:
        raised, self._raised = self._raised, None
        if raised is not None:
            raise raised


def _bytes_at(address: int, length: int) -> torch.Tensor:
    return torch.frombuffer((ctypes.c_ubyte * length).from_address(address), dtype=torch.uint8)


def _cpu_group(group: ProcessGroup | None) -> ProcessGroup | None:
    """`group`, or the default group (None), or, if that one cannot send CPU tensors, a gloo group that is created here
    (collective)."""
    if group is None and "cpu:" not in dist.get_backend_config():
        made: ProcessGroup = dist.new_group(backend="gloo")
        return made
    if group is not None and dist.get_world_size(group) != dist.get_world_size():
        raise errors.InvalidArgumentError("group= must contain every rank of the job")
    return group


@dataclass(frozen=True)
class World:
    """The ranks of a job, and the number of this one."""

    rank: int
    size: int
    oob: Oob
    group: ProcessGroup | None = None  # for CPU tensors; None: the default one, or there is one rank
    members: tuple[int, ...] | None = None  # the ranks of torch.distributed that are in it; None: all

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order. pickle must be able to handle them. Collective."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self.group)
        return values

    def agreed(self, make: Callable[[], _T], otherwise: str = "nothing is loaded") -> _T:
        """Calls `make` and returns what it returns, unless it raises on any rank. Use it before a step in which ranks
        would wait for one that has failed. That rank raises its own error; on the others the error says `otherwise`,
        and which rank failed. Collective."""
        fault: Exception | None = None
        try:
            made = make()
        except Exception as error:
            fault = error
        faults = self.gather(None if fault is None else errors.as_status(fault))
        if fault is not None:
            raise fault
        for rank, of_rank in enumerate(faults):
            if of_rank is not None:
                raise errors.from_status(of_rank[0], f"{otherwise}, as rank {rank} cannot: {of_rank[1]}")
        return made


def join_world(group: ProcessGroup | None = None) -> World:
    """The ranks of the default process group, or this rank alone if there is none. Raises InvalidArgumentError if
    $WORLD_SIZE says that there are others."""
    if not (dist.is_available() and dist.is_initialized()):
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise errors.InvalidArgumentError("this is one of several ranks ($WORLD_SIZE): call "
                                              "torch.distributed.init_process_group before init")
        return World(0, 1, Oob())
    rank, size = dist.get_rank(), dist.get_world_size()
    if size == 1:
        return World(rank, size, Oob())
    group = _cpu_group(group)
    return World(rank, size, Oob(size, lambda parts, mine: dist.all_gather(parts, mine, group=group)), group)


def world_of(group: ProcessGroup | None, alone: bool = False) -> World:
    """The ranks of a process group as a job of their own, as torch.distributed.checkpoint understands process_group.
    `alone`, or no process group at all: this rank. Collective over these ranks."""
    if not (dist.is_available() and dist.is_initialized()):
        return World(0, 1, Oob())
    if alone:
        return World(0, 1, Oob(), None, (dist.get_rank(),))
    if group is None or dist.get_world_size(group) == dist.get_world_size():
        return join_world(group if group is not None and _sends_from_cpu(group) else None)
    members = tuple(dist.get_process_group_ranks(group))
    if not _sends_from_cpu(group):
        group = dist.new_group(list(members), backend="gloo", use_local_synchronization=True)
    size = len(members)
    if size == 1:
        return World(0, 1, Oob(), None, members)
    return World(members.index(dist.get_rank()), size,
                 Oob(size, lambda parts, mine: dist.all_gather(parts, mine, group=group)), group, members)


def _sends_from_cpu(group: ProcessGroup) -> bool:
    return torch.device("cpu") in group._device_types
