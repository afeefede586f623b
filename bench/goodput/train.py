# SPDX-License-Identifier: Apache-2.0
"""One rank of the training that the campaign disturbs: steps of a fixed time over a state of its own, saved by one of
the ways below as often as Young's formula says for what a save of that way stalls. Prints one JSON object a line."""

import argparse
import json
import math
import os
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

TENSORS = 64
FIRST_INTERVAL = 20  # steps, until the stall is known
SAVES_MEASURED = 3
STORAGE_SECONDS = 2.0


def say(**what):
    print(json.dumps({"at": time.monotonic(), **what}), flush=True)


class Training:
    def __init__(self, rank: int, state_bytes: int, step_seconds: float):
        self.rank, self.step_seconds, self.step = rank, step_seconds, 0
        self.tensors = {f"layer{i}": torch.zeros(state_bytes // TENSORS // 4) for i in range(TENSORS)}
        small = torch.nn.Parameter(torch.ones(8))
        small.grad = torch.ones(8)
        self._optimizer = torch.optim.SGD([small], lr=0.1)  # its first step imports what every training needs

    def train(self):
        """Changes every tensor, so that no way can skip any, in the time that the step has."""
        begin = time.perf_counter()
        self.step += 1
        self._optimizer.step()
        for tensor in self.tensors.values():
            tensor[:1024].fill_(self.step)
        dist.barrier()
        time.sleep(max(0.0, self.step_seconds - (time.perf_counter() - begin)))

    def check(self):
        for name, tensor in self.tensors.items():
            if int(tensor[0]) != self.step:
                raise SystemExit(f"rank {self.rank}: {name} is of step {int(tensor[0])}, not {self.step}")


class Way:
    """save() is called at a step that is due, and returns when the training may continue; load() returns the step."""

    def __init__(self, training: Training, directory: str):
        self.training, self.directory = training, directory

    def before_step(self):
        pass

    def latest(self):
        try:
            with open(os.path.join(self.directory, "latest"), encoding="utf-8") as file:
                return int(file.read())
        except FileNotFoundError:
            return 0

    def name_latest(self, step: int):
        """By rank 0, once every rank has written its part."""
        part = os.path.join(self.directory, "latest.part")
        with open(part, "w", encoding="utf-8") as file:
            file.write(str(step))
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, os.path.join(self.directory, "latest"))

    def path(self, step: int):
        return os.path.join(self.directory, f"step{step}")


class TorchSave(Way):
    """A file of each rank, synced, and then a barrier."""

    def file(self, step: int):
        return f"{self.path(step)}.rank{self.training.rank}"

    def save(self, step: int):
        with open(self.file(step), "wb") as file:
            torch.save(self.training.tensors, file)
            file.flush()
            os.fsync(file.fileno())
        dist.barrier()
        if self.training.rank == 0:
            self.name_latest(step)

    def load(self):
        step = self.latest()
        if step:
            for name, tensor in torch.load(self.file(step)).items():
                self.training.tensors[name].copy_(tensor)
        return step


class DcpAsync(Way):
    """torch.distributed.checkpoint.async_save; a save that comes while the last one is written waits for it."""

    def __init__(self, training, directory):
        super().__init__(training, directory)
        self._group = dist.new_group(backend="gloo")  # the writing thread needs one of its own
        self._writing = None

    def state(self):
        return {f"rank{self.training.rank}.{name}": tensor for name, tensor in self.training.tensors.items()}

    def _finish(self):
        if self._writing is not None:
            future, step = self._writing
            future.result()
            self._writing = None
            dist.barrier()
            if self.training.rank == 0:
                self.name_latest(step)

    def before_step(self):
        """The last save counts as soon as it is written on all ranks, without waiting for it."""
        if self._writing is not None:
            done = torch.tensor([int(self._writing[0].done())])
            dist.all_reduce(done, dist.ReduceOp.MIN)
            if done.item():
                self._finish()

    def save(self, step: int):
        self._finish()
        self._writing = dcp.async_save(self.state(), checkpoint_id=self.path(step), process_group=self._group), step

    def load(self):
        step = self.latest()
        if step:
            dcp.load(self.state(), checkpoint_id=self.path(step), process_group=self._group)
        return step


class LmResiliency(Way):
    """Memory of this trainer and of the other one; a trainer that gets SIGTERM, or whose collective fails, writes both
    to a directory, here one that all nodes see, and every few seconds each does."""

    def __init__(self, training, directory):
        super().__init__(training, directory)
        from lm_resiliency.checkpointing import InMemoryCheckpointManager, InMemoryCkptConfig
        self._manager = InMemoryCheckpointManager(InMemoryCkptConfig(
            interval=1, replication_jump=1, pin_memory=False, verify_integrity=True, run_id="goodput",
            disk_flush_interval=0, disk_folder=os.path.join(directory, "lm-resiliency")))
        self._stored = 0

    def save(self, step: int):
        due = (step - self._stored) * self.training.step_seconds >= STORAGE_SECONDS  # the same on all ranks
        self._stored = step if due else self._stored
        self._manager.config.disk_flush_interval = int(due)  # this save writes the one before it
        self._manager.save_tensors(list(self.training.tensors.values()), step)

    def load(self):
        found = self._manager.load_tensors()
        if found is None:
            return 0
        tensors, step, _ = found
        for tensor, saved in zip(self.training.tensors.values(), tensors, strict=True):
            tensor.copy_(saved)
        self._stored = step
        return step


class Tierckpt(Way):
    """Ours: memory of this node and of the other one, and every few seconds to storage."""

    def __init__(self, training, directory):
        super().__init__(training, directory)
        import tierckpt
        model = torch.nn.Module()
        model.layers = torch.nn.ParameterList(torch.nn.Parameter(t, requires_grad=False)
                                              for t in training.tensors.values())
        node = f"node{training.rank}"
        self._checkpoint = tierckpt.init(model=model, overrides={
            "job": "goodput", "node": node, "runtime_dir": os.environ["GOODPUT_RUNTIME_DIR"],
            "save_dir": directory, "copies": 2, "linger_s": 60, "save_mem_interval": 0, "save_storage_interval": 0,
            "net_device": "lo", "restore_wait_ms": 1000, "max_ckpt_num": 2}, replicate_group=tierckpt.PRIVATE)

        self._stored = 0

    def before_step(self):
        self._checkpoint.fence()

    def save(self, step: int):
        due = (step - self._stored) * self.training.step_seconds >= STORAGE_SECONDS  # the same on all ranks
        self._stored = step if due else self._stored
        self._checkpoint.save_checkpoint(step, to_storage=due)

    def load(self):
        self._stored = self._checkpoint.load_checkpoint() or 0
        return self._stored


WAYS = {"torch.save": TorchSave, "dcp.async": DcpAsync, "lm-resiliency": LmResiliency, "tierckpt": Tierckpt}


def young(stall: float, mtbf: float, step_seconds: float) -> int:
    """Steps between saves (J. W. Young, CACM 17(9), 1974), the same rule for every way."""
    return max(1, round(math.sqrt(2 * stall * mtbf) / step_seconds))


def agreed_interval(stalls, args) -> int:
    """All ranks save at the same steps, by the largest mean stall."""
    stall = torch.tensor([sum(stalls) / len(stalls)])
    dist.all_reduce(stall, dist.ReduceOp.MAX)
    return young(stall.item(), args.mtbf, args.step_seconds)


def run(training: Training, way: Way, args):
    interval, stalls, measured = args.interval or FIRST_INTERVAL, [], bool(args.interval)
    next_save = training.step + interval
    while True:
        begin = time.perf_counter()
        way.before_step()
        stall = time.perf_counter() - begin
        training.train()
        if training.step >= next_save:
            begin = time.perf_counter()
            way.save(training.step)
            stalls.append(time.perf_counter() - begin + stall)
            if len(stalls) == SAVES_MEASURED and not measured:
                interval, measured = agreed_interval(stalls, args), True
            next_save = training.step + interval
        say(step=training.step, interval=interval, measured=measured)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    parser.add_argument("--store", required=True)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--state-bytes", type=int, required=True)
    parser.add_argument("--step-seconds", type=float, required=True)
    parser.add_argument("--mtbf", type=float, required=True)
    parser.add_argument("--interval", type=int, help="steps between saves, as an earlier launch found it")
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{args.store}", world_size=args.world, rank=args.rank)
    training = Training(args.rank, args.state_bytes, args.step_seconds)
    way = WAYS[args.way](training, args.dir)
    training.step = way.load()
    training.check()
    say(restored=training.step)
    run(training, way, args)


if __name__ == "__main__":
    main()
