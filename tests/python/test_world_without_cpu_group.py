# SPDX-License-Identifier: Apache-2.0
"""Process groups that cannot send CPU tensors, as NCCL's: the ranks reach each other over a tree of connections, and no
process group is made for it. gloo for the device type cuda takes the place of NCCL."""

import os
from contextlib import contextmanager

import torch
import torch.distributed as dist

import tierckpt
from harness import run
from tierckpt.adapters.agreement import Agreement
from tierckpt.runtime import world as worlds
from tierckpt.runtime.native import Bootstrap
from tierckpt.runtime.world import join_world, world_of


def start(backend, rank, world, number):
    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group(backend, init_method=f"file://{os.getcwd()}/store.{number}", rank=rank, world_size=world)


@contextmanager
def for_gpus_only(rank, world):
    """The default process group is one, until the end. There, making another one is an error."""
    start("cuda:gloo", rank, world, 1)
    make, dist.new_group = dist.new_group, None
    yield
    dist.new_group = make
    start("gloo", rank, world, 2)


def gather(rank, world):
    with for_gpus_only(rank, world):
        joined = join_world()
        assert isinstance(joined.oob, Bootstrap)
        assert join_world().oob is joined.oob  # connections are made once
        values = joined.gather({"rank": rank, "text": "x" * rank * 1000})
        agreement = Agreement(joined)
        agreed = [agreement(True), agreement(rank != 3)]
        agreement.close()
        again = Agreement(joined)  # in the same store
        agreed.append(again(True))
        again.close()
    joined = join_world()  # another process group by now
    assert not isinstance(joined.oob, Bootstrap)
    return [value["rank"] for value in values], [len(value["text"]) for value in values], agreed


def test_values_of_all_ranks_are_gathered(tmp_path):
    expected = [list(range(12)), [rank * 1000 for rank in range(12)], [True, False, True]]
    assert run(tmp_path, "test_world_without_cpu_group:gather", world=12) == [expected] * 12


def gather_in_halves(rank, world):
    start("cuda:gloo", rank, world, 1)
    halves = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    part = world_of(halves[rank // 2])
    assert isinstance(part.oob, Bootstrap)
    values = part.gather(rank)
    start("gloo", rank, world, 2)
    return part.rank, part.size, list(part.members), values


def test_some_ranks_are_a_world_of_their_own(tmp_path):
    assert run(tmp_path, "test_world_without_cpu_group:gather_in_halves", world=4) == [
        [0, 2, [0, 1], [0, 1]], [1, 2, [0, 1], [0, 1]], [0, 2, [2, 3], [2, 3]], [1, 2, [2, 3], [2, 3]]]


def opens_again_after_a_failure(rank, world):
    with for_gpus_only(rank, world):
        broken = join_world()
        broken.gather(0)
        if rank == 1:  # what happens inside: it is gone, and the others learn of it only when they use theirs
            broken.oob._library.tck_bootstrap_close(broken.oob._handle)
            broken.oob._handle.value = None
            worlds._opened[1].clear()
        elif rank == 2:
            try:
                broken.gather(0)
            except tierckpt.UnreachableError as error:
                assert "has closed the connection" in str(error), error
            else:
                raise AssertionError("gathered without rank 1")
        return join_world().gather(rank)


def test_connections_are_made_again_after_a_failure(tmp_path):
    target = "test_world_without_cpu_group:opens_again_after_a_failure"
    assert run(tmp_path, target, world=3) == [[0, 1, 2]] * 3


def train(rank, world, config, steps):
    with for_gpus_only(rank, world):
        torch.manual_seed(1)
        model = torch.nn.Linear(8, 8)
        optimizer = torch.optim.AdamW(model.parameters())
        checkpoint = tierckpt.init(model=model, optimizer=optimizer, replicate_group=dist.group.WORLD,
                                   config=config)
        step = checkpoint.load_checkpoint() or 0
        begun = step
        while step < steps:
            model(torch.randn(4, 8)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            checkpoint.save_checkpoint_if_needed(step)
        checkpoint.save_last(step)
        checkpoint.close()
        return begun, model.weight.double().sum().item()


def test_training_is_saved_and_restored(tmp_path):
    config = {"save_dir": str(tmp_path / "save"), "runtime_dir": str(tmp_path / "run"), "save_mem_interval": 1}
    first = run(tmp_path, "test_world_without_cpu_group:train", world=2, config=config, steps=5)
    assert [begun for begun, _ in first] == [0, 0]
    assert run(tmp_path, "test_world_without_cpu_group:train", world=2, config=config, steps=5) == [
        [5, weights] for _, weights in first]
