# SPDX-License-Identifier: Apache-2.0
"""SageMaker-style functions: local state dicts are restored bit for bit, sharded ones also on other numbers of
ranks."""

import hashlib
import json
import os
import random
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict

import models
import tierckpt
import tierckpt.dcp
import tierckpt.sagemaker as sm
from harness import Job, die, run
from tierckpt.adapters.sagemaker import _step_of

NURSERY = "test_sagemaker"
STEPS = 6


class Training:
    """The training of one of several shards, each with a model of its own."""

    def __init__(self, shard):
        torch.manual_seed(shard)
        self.model = torch.nn.Linear(6, 4)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.done = 0
        for parameter in self.model.parameters():
            parameter.grad = torch.zeros_like(parameter)
        self.optimizer.step()  # creates its state

    def step(self):
        loss = self.model(torch.randn(8, 6)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.done += 1
        return loss.item()

    def state(self):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "done": self.done,
                "rng": torch.get_rng_state()}

    def put(self, state):
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.done = state["done"]
        torch.set_rng_state(state["rng"])

    def digest(self):
        total = hashlib.sha256(repr(self.done).encode() + torch.get_rng_state().numpy().tobytes())
        state = self.optimizer.state_dict()["state"].values()
        moments = [item[key] for item in state for key in sorted(item)]
        for tensor in [*self.model.state_dict().values(), *moments]:
            total.update(tensor.detach().numpy().tobytes())
        return total.hexdigest()


def replica_group(rank, world, shards):
    """The ranks that have the same shard as this one."""
    groups = [dist.new_group(list(range(shard, world, shards))) for shard in range(shards)]
    return groups[rank % shards]


def train(rank, world, shards=2, config=None, own_nodes=False, die_at=None, in_flight=False, to=STEPS):
    """Returns [step resumed at, losses from there on, digest, indices that were finalized]."""
    job = Training(rank % shards)
    if config is None:
        return [0, [job.step() for _ in range(to)], job.digest(), []]
    arguments = {"checkpoint_id": f"/anywhere/checkpoints/tp0_fsdp{rank % shards}",
                 "process_group": replica_group(rank, world, shards)}
    sm.configure(config=config, overrides={"node": f"node{rank}"} if own_nodes else None)
    state = job.state()
    if sm.newest(state, **arguments) is not None:
        sm.load(state, **arguments)
        job.put(state)
    resumed, losses, finalized = job.done, [], []
    for step in range(resumed + 1, to + 1):
        losses.append(job.step())
        finalized += sm.maybe_finalize_async_calls(blocking=True)
        if step == die_at and in_flight:
            dist.barrier()
        sm.async_save(job.state(), **arguments)
        if step == die_at:
            if not in_flight:
                sm.maybe_finalize_async_calls(blocking=True)
                dist.barrier()
            die()
    finalized += sm.maybe_finalize_async_calls()
    digest = job.digest()
    sm.close()
    return [resumed, losses, digest, finalized]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    return run(tmp_path_factory.mktemp("reference"), "test_sagemaker:train", nursery=nursery, world=2)


def assert_same(resumed, reference):
    for (step, losses, digest, _), (_, all_losses, all_digest, _) in zip(resumed, reference, strict=True):
        assert losses == all_losses[step:]
        assert digest == all_digest


def killed(tmp_path, **arguments):
    with Job(tmp_path, "test_sagemaker:train", **arguments) as job:
        job.killed()


def test_local_state_is_resumed_with_equal_bits(tmp_path, site, nursery, uninterrupted):
    """The ranks die right after the save of a step has begun, so that version may or may not exist."""
    step = random.Random("local").randint(2, STEPS - 1)
    killed(tmp_path, nursery=nursery, world=2, config=site.config, die_at=step, in_flight=True)
    resumed = run(tmp_path, "test_sagemaker:train", nursery=nursery, world=2, config=site.config)
    assert {rank[0] for rank in resumed} in ({step - 1}, {step})
    assert_same(resumed, uninterrupted)
    assert [rank[3] for rank in resumed] == [list(range(STEPS - resumed[0][0]))] * 2


def test_lost_node_is_restored_from_its_replica(tmp_path, site, nursery, uninterrupted):
    """Ranks 0 and 2 hold the same state, as do 1 and 3; after the loss, one of each is left."""
    config = {**site.config, "copies": 2, "save_storage_interval": 3}
    killed(tmp_path, nursery=nursery, world=4, config=config, die_at=4, own_nodes=True)
    site.kill_agents("node3")
    resumed = run(tmp_path, "test_sagemaker:train", nursery=nursery, world=4, config=config, own_nodes=True)
    assert [rank[0] for rank in resumed] == [4] * 4
    assert_same(resumed, [*uninterrupted, *uninterrupted])
    fewer = run(tmp_path, "test_sagemaker:train", nursery=nursery, world=2, config=config, to=STEPS + 1)
    assert [rank[0] for rank in fewer] == [STEPS] * 2


def sharded(rank, world, config, reference):
    model, optimizer = models.make("fsdp")
    model(torch.randn(4, models.WIDTH)).square().mean().backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    sm.configure(config=config)
    sm.save({"model": weights, "optimizer": moments, "epoch": 3}, checkpoint_id="/checkpoints/step-40/tp0_ep0")
    whole = {key: value.full_tensor() if hasattr(value, "full_tensor") else value for key, value in weights.items()}
    if rank == 0:
        torch.save(whole, reference)
    part = dist.new_group([0])
    if rank == 0:
        with pytest.raises(tierckpt.InvalidArgumentError, match="all ranks of the job"):
            sm.async_save({"model": weights}, checkpoint_id="step-41", process_group=part)
    sm.close()


def test_sharded_state_is_loaded_by_one_rank(tmp_path, site, nursery):
    reference = str(tmp_path / "reference.pt")
    config = {**site.config, "save_storage_interval": 40}
    run(tmp_path, "test_sagemaker:sharded", nursery=nursery, world=2, config=config, reference=reference)
    expected = torch.load(reference)
    state = {"model": {key: torch.full_like(value, 99) for key, value in expected.items()}, "epoch": None}
    sm.load(state, storage_reader=tierckpt.dcp.StorageReader(site.config), checkpoint_id="step-40")
    assert state["epoch"] == 3
    assert all(torch.equal(state["model"][key], value) for key, value in expected.items())


# ---- incorrect use


@pytest.fixture
def configured(site):
    sm.configure(config=site.config)
    yield {"w": torch.arange(4.0), "step": 1}
    sm.close()


def test_functions_before_configure_say_so():
    for call in (sm.maybe_finalize_async_calls, lambda: sm.async_save({}), lambda: sm.load({})):
        with pytest.raises(tierckpt.InvalidArgumentError, match="call tierckpt.sagemaker.configure"):
            call()


@pytest.mark.parametrize("keyword", ["storage_writer", "planner", "queue", "sharded_strategy", "s3_region",
                                     "s3client_config"])
def test_unsupported_keyword_is_one_error(configured, keyword):
    with pytest.raises(tierckpt.UnsupportedError, match=f"{keyword} cannot be used"):
        sm.async_save(configured, checkpoint_id="step-1", **{keyword: object()})


def test_other_storage_is_one_error(configured):
    with pytest.raises(tierckpt.UnsupportedError, match="not in S3"):
        sm.async_save(configured, checkpoint_id="s3://bucket/step-1")
    with pytest.raises(tierckpt.UnsupportedError, match="storage_reader is a object"):
        sm.load(configured, storage_reader=object())


def test_accepted_keywords_change_nothing(configured):
    sm.async_save(configured, checkpoint_id="run/checkpoint-7", coordinator_rank=0, wait_error_handling=False,
                  force_check_all_plans=False)
    assert sm.maybe_finalize_async_calls(blocking=True, process_group=None) == [0]
    assert sm.maybe_finalize_async_calls(blocking=False) == []
    loaded = {"w": torch.zeros(4), "step": None}
    sm.load(loaded, checkpoint_id="run/checkpoint-7", check_keys_matched=False, coordinator_rank=0)
    assert torch.equal(loaded["w"], configured["w"]) and loaded["step"] == 1


@pytest.mark.parametrize("checkpoint_id, step", [
    ("/a/step-120/tp0_fsdp3", 120), ("/a/global_step120/tp1", 120), ("/run7/checkpoint-5", 5), ("/a/9/tp0_ep0", 9),
    ("/opt/ml/checkpoints/tp0_ep0_fsdp3", 0), ("", 0)])
def test_step_in_a_path(checkpoint_id, step):
    assert _step_of(checkpoint_id) == step


# ---- examples


def launch(example, ranks, path, steps):
    """Runs the example with torchrun, as a user does."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(example),
               str(path), str(steps)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    return done.stdout


@pytest.mark.parametrize("name, ranks", [("dcp_fsdp.py", (2, 1)), ("sagemaker_local.py", (2, 2))])
def test_example_continues_where_it_stopped(site, top, name, ranks):
    """A finished job leaves nothing in memory, so the second start loads from storage."""
    path = site.dir / "tierckpt.json"
    path.write_text(json.dumps({**site.config, "save_storage_interval": 10}))
    for number, (first, last) in zip(ranks, ((0, 10), (10, 20)), strict=True):
        said = launch(top / "python/examples" / name, number, path, last)
        assert said.count(f"trained from step {first} to {last}") == number
