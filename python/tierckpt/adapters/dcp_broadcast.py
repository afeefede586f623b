# SPDX-License-Identifier: Apache-2.0
"""A load from a directory in which each part that several ranks need is read by one of them, which sends it to the
others. Ranks that need the same part of the same tensor are replicas of each other, whatever made them so."""

from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan

_Ranks = tuple[int, ...]


class BroadcastPlanner(DefaultLoadPlanner):
    """For one load by all ranks of the default process group; afterwards all of them call `send`. What the agents bring
    from memory or storage is read only once on each node, so none of that is sent."""

    _groups: list[_Ranks]
    _sent: list[tuple[_Ranks, tuple[Any, ...], Any]]

    def create_local_plan(self) -> LoadPlan:
        plan = super().create_local_plan()
        return replace(plan, planner_data=[self._part(item) for item in plan.items])

    def _part(self, item: Any) -> tuple[Any, ...] | None:
        """What is read for an item; the same for replicas. None if it cannot be sent."""
        if item.type == LoadItemType.BYTE_IO:
            return None
        tensor = self.state_dict[item.dest_index.fqn]
        if f"{tensor.device.type}:" not in dist.get_backend_config():
            return None
        begin = tuple(item.storage_index.offset or ())
        return item.storage_index.fqn, begin, tuple(item.storage_offsets), tuple(item.lengths), str(tensor.dtype)

    def create_global_plan(self, global_plan: list[LoadPlan]) -> list[LoadPlan]:
        """On rank 0. A plan for a directory of ours has its version as storage_data; others have none."""
        holders: dict[Any, list[int]] = {}
        for rank, plan in enumerate(global_plan):
            for part in plan.planner_data if plan.storage_data is not None else ():
                holders.setdefault(part, []).append(rank)
        shared = {part: tuple(ranks) for part, ranks in holders.items() if part is not None and len(ranks) > 1}
        groups = sorted(set(shared.values()))
        return [replace(plan, planner_data=(groups, [(shared.get(part), part) for part in plan.planner_data]))
                for plan in super().create_global_plan(global_plan)]

    def finish_plan(self, central_plan: LoadPlan) -> LoadPlan:
        """Leaves out what this rank gets from another one."""
        self._groups, parts = central_plan.planner_data
        items = list(zip(central_plan.items, parts, strict=True))
        self._sent = sorted(((ranks, part, item) for item, (ranks, part) in items if ranks is not None),
                            key=lambda sent: sent[:2])
        rank = dist.get_rank()
        own = [item for item, (ranks, _) in items if ranks is None or ranks[0] == rank]
        return super().finish_plan(replace(central_plan, items=own))

    def send(self) -> None:
        """In the same order on all ranks. Collective over all of them."""
        every = tuple(range(dist.get_world_size()))
        groups = {ranks: None if ranks == every else dist.new_group(list(ranks)) for ranks in self._groups}
        for ranks, _, item in self._sent:
            _broadcast(self.resolve_tensor(item).detach(), ranks[0], groups[ranks])
        for group in groups.values():
            if group is not None and group != dist.GroupMember.NON_GROUP_MEMBER:
                dist.destroy_process_group(group)


def _broadcast(tensor: torch.Tensor, source: int, group: dist.ProcessGroup | None) -> None:
    """As bytes, since not every backend knows every dtype."""
    sent = tensor.contiguous()
    dist.broadcast(sent.reshape(-1).view(torch.uint8), source, group=group)
    if sent.data_ptr() != tensor.data_ptr():
        tensor.copy_(sent)
