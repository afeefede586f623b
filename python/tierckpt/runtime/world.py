# SPDX-License-Identifier: Apache-2.0
"""The ranks of a job, and the allgather by which the library reaches them over torch.distributed."""

import ctypes
import hashlib
import os
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from .. import errors
from .native import ALLGATHER, Bootstrap

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
        self.context: int | None = None

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


_opened: tuple[Any, dict[str, Bootstrap]] | None = None  # the default process group, and those that were opened in it


def open_bootstrap(name: str, members: tuple[int, ...] | None = None, timeout: float = 0) -> Bootstrap:
    """Connects all ranks, or the members, of which this is one. It makes no process group, since gloo would connect
    each rank with all others. Collective."""
    prefix = f"tierckpt/{name}/" if members is None else f"tierckpt/{name}/{_digest(members)}/"
    rank = dist.get_rank()
    return Bootstrap(dist.distributed_c10d._get_default_store(), prefix,
                     rank=rank if members is None else members.index(rank),
                     world_size=dist.get_world_size() if members is None else len(members), timeout=timeout)


def _digest(members: tuple[int, ...]) -> str:
    return hashlib.blake2b(repr(members).encode(), digest_size=8).hexdigest()


def _common_bootstrap(members: tuple[int, ...] | None) -> Bootstrap:
    """The group that all calls in the thread of the training use. Collective."""
    global _opened
    if _opened is None or _opened[0] is not dist.group.WORLD:
        _opened = (dist.group.WORLD, {})
    name = "all" if members is None else _digest(members)
    found = _opened[1].pop(name, None)
    if found is None or not found.works():
        found = open_bootstrap("world", members)
    _opened[1][name] = found
    return found


@dataclass(frozen=True)
class World:
    """The ranks of a job, and the number of this one."""

    rank: int
    size: int
    oob: Oob | Bootstrap
    group: ProcessGroup | None = None  # if oob is an Oob: for CPU tensors; None: the default one, or there is one rank
    members: tuple[int, ...] | None = None  # the ranks of torch.distributed that are in it; None: all

    def gather(self, value: Any) -> list[Any]:
        """The values of all ranks, in their order. pickle must be able to handle them. Collective."""
        if self.size == 1:
            return [value]
        if isinstance(self.oob, Bootstrap):
            return _gather_objects(self.oob, value)
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


def _gather_objects(bootstrap: Bootstrap, value: Any) -> list[Any]:
    data = pickle.dumps(value)
    lengths = [int.from_bytes(length, "little") for length in bootstrap.allgather(len(data).to_bytes(8, "little"))]
    padded = bootstrap.allgather(data.ljust(max(lengths), b"\0"))
    return [pickle.loads(of_rank[:length]) for of_rank, length in zip(padded, lengths, strict=True)]


def join_world(group: ProcessGroup | None = None) -> World:
    """The ranks of the default process group, or this rank alone if there is none. Raises InvalidArgumentError if
    $WORLD_SIZE says that there are others. Collective."""
    if not (dist.is_available() and dist.is_initialized()):
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise errors.InvalidArgumentError("this is one of several ranks ($WORLD_SIZE): call "
                                              "torch.distributed.init_process_group before init")
        return World(0, 1, Oob())
    rank, size = dist.get_rank(), dist.get_world_size()
    if group is not None and dist.get_world_size(group) != size:
        raise errors.InvalidArgumentError("group= must contain every rank of the job")
    return World(rank, size, *_way(group, None, size))


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
    return World(members.index(dist.get_rank()), len(members), *_way(group, members, len(members)), members)


def _way(group: ProcessGroup | None, members: tuple[int, ...] | None,
         size: int) -> tuple[Oob | Bootstrap, ProcessGroup | None]:
    """How these ranks reach each other: over the group, if it can send CPU tensors."""
    if size == 1:
        return Oob(), None
    if not _sends_from_cpu(group):
        return _common_bootstrap(members), None
    return Oob(size, lambda parts, mine: dist.all_gather(parts, mine, group=group)), group


def _sends_from_cpu(group: ProcessGroup | None) -> bool:
    if group is None:
        return "cpu:" in dist.get_backend_config()
    return torch.device("cpu") in group._device_types
