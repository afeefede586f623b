# SPDX-License-Identifier: Apache-2.0
"""What the ranks of a measure agree about, over a group beside that which the measured way uses."""

import datetime

import torch
import torch.distributed as dist

TIMEOUT = datetime.timedelta(seconds=180)


class Ranks:
    def __init__(self, rank: int, world: int, directory: str):
        self.rank, self.world = rank, world
        self._group = dist.ProcessGroupGloo(dist.FileStore(f"{directory}/beside", world), rank, world, TIMEOUT)

    def meet(self):
        self._group.barrier().wait()

    def most(self, values: list[float]) -> list[float]:
        """Of each value that of the rank with the highest."""
        tensor = torch.tensor(values, dtype=torch.float64)
        options = dist.AllreduceOptions()
        options.reduceOp = dist.ReduceOp.MAX
        self._group.allreduce([tensor], options).wait()
        return tensor.tolist()


def join(rank: int, world: int, directory: str, alone: bool):
    """The default process group: all ranks, or of each rank one of its own."""
    name, size, place = (f"alone{rank}", 1, 0) if alone else ("ranks", world, rank)
    dist.init_process_group("gloo", init_method=f"file://{directory}/{name}", world_size=size, rank=place)
