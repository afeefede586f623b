# SPDX-License-Identifier: Apache-2.0
"""SageMaker-style functions: local state dicts are restored bit for bit, sharded ones also on other numbers of
ranks."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict

import models
import tierckpt
import tierckpt.dcp
import tierckpt.sagemaker as sm
from harness import TIMEOUT_S, Job, die, run

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


def train(rank, world, shards=2, config=None, directory=None, own_nodes=False, die_at=None, in_flight=False, to=STEPS):
    """Returns [step resumed at, losses from there on, digest, indices that were finalized]."""
    job = Training(rank % shards)
    if config is None:
        return [0, [job.step() for _ in range(to)], job.digest(), []]
    arguments = {"checkpoint_id": f"{directory}/checkpoints/tp0_fsdp{rank % shards}",
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
    job = {"nursery": nursery, "world": 2, "config": site.config, "directory": str(site.dir)}
    killed(tmp_path, die_at=step, in_flight=True, **job)
    resumed = run(tmp_path, "test_sagemaker:train", **job)
    assert {rank[0] for rank in resumed} in ({step - 1}, {step})
    assert_same(resumed, uninterrupted)
    assert [rank[3] for rank in resumed] == [list(range(STEPS - resumed[0][0]))] * 2


def test_lost_node_is_restored_from_its_replica(tmp_path, site, nursery, uninterrupted):
    """Ranks 0 and 2 hold the same state, as do 1 and 3; after the loss, one of each is left."""
    job = {"nursery": nursery, "config": {**site.config, "copies": 2, "save_storage_interval": 3},
           "directory": str(site.dir)}
    killed(tmp_path, world=4, die_at=4, own_nodes=True, **job)
    series, = (site.dir / "run").iterdir()
    site.config["job"] = series.name
    site.kill_agents("node3")
    resumed = run(tmp_path, "test_sagemaker:train", world=4, own_nodes=True, **job)
    assert [rank[0] for rank in resumed] == [4] * 4
    assert_same(resumed, [*uninterrupted, *uninterrupted])
    fewer = run(tmp_path, "test_sagemaker:train", world=2, to=STEPS + 1, **job)
    assert [rank[0] for rank in fewer] == [STEPS] * 2


def appears(file):
    deadline = time.monotonic() + TIMEOUT_S
    while not file.exists():
        assert time.monotonic() < deadline, f"{file} does not appear"
        time.sleep(0.02)


def local_ids(rank, directory):
    return [f"{directory}/step-{step}/tp0_fsdp{rank}" for step in range(6)]


def found_in(checkpoint_id):
    state = {"w": torch.zeros(5)}
    sm.load(state, checkpoint_id=checkpoint_id)
    return state["w"].unique().tolist()


def saved_beside(rank, world, config, directory):
    """Saves, waits for the loads of another program, and goes on saving."""
    sm.configure(config=config)
    ids = local_ids(rank, directory)
    for step in (1, 2, 3):
        sm.save({"w": torch.full((5,), float(step))}, checkpoint_id=ids[step])
    dist.barrier()
    Path(directory, f"saved.{rank}").touch()
    appears(Path(directory, "loaded"))
    sm.save({"w": torch.full((5,), 5.0)}, checkpoint_id=ids[5])
    return found_in(ids[5])


def loaded_beside(rank, world, config, directory):
    """What loads of the same ids give or raise. The job would be theirs to take over."""
    sm.configure(config=config, overrides={"takeover": "on"})
    said = []
    for one in local_ids(rank, directory)[2:5]:
        try:
            said.append(found_in(one))
        except tierckpt.Error as error:
            said.append(f"{type(error).__name__} {error}")
    return said


def test_loads_beside_living_trainers_leave_them_alone(tmp_path, site, nursery):
    arguments = {"world": 2, "directory": str(site.dir), "config": {**site.config, "save_storage_interval": 2}}
    with Job(tmp_path, "test_sagemaker:saved_beside", nursery=nursery, **arguments) as living:
        for rank in range(2):
            appears(site.dir / f"saved.{rank}")
        ranks = run(tmp_path, "test_sagemaker:loaded_beside", nursery=nursery, **arguments)
        (site.dir / "loaded").touch()
        assert living.results() == [[5.0]] * 2
    for on_storage, in_memory, never_saved in ranks:
        assert on_storage == [2.0]
        assert in_memory.startswith("ExistsError ") and "/step-3/tp0_fsdp" in in_memory
        assert "is not on storage: step 3 of it is in the memory of trainers" in in_memory
        assert never_saved.startswith("NotFoundError nothing was saved as ") and "/step-4/tp0_fsdp" in never_saved


def killed_after_saves(rank, world, config, directory):
    sm.configure(config=config)
    for step in (1, 2, 3):
        for checkpoint_id in local_ids(rank, directory)[step], f"{directory}/again/tp0_fsdp{rank}":
            sm.save({"w": torch.full((5,), float(step))}, checkpoint_id=checkpoint_id)
        if rank == 1 and step == 2:
            shutil.copytree(f"{directory}/again/tp0_fsdp1", f"{directory}/earlier")
    dist.barrier()
    die()


def loaded(rank, world, config, directory, checkpoint_id):
    sm.configure(config=config)
    return found_in(f"{directory}/{checkpoint_id}/tp0_fsdp{rank}")


@pytest.mark.parametrize("checkpoint_id", ["step-3", "again"])
@pytest.mark.parametrize("agents", ["alive", "gone"])
def test_kill_between_the_directories_of_two_ranks_loses_nothing(tmp_path, site, nursery, checkpoint_id, agents):
    """Rank 1 has no directory of the last save, or that of an earlier one."""
    config = {**site.config}
    del config["save_storage_interval"]  # so that each save goes to storage
    arguments = {"nursery": nursery, "world": 2, "config": config, "directory": str(site.dir)}
    with Job(tmp_path, "test_sagemaker:killed_after_saves", **arguments) as job:
        job.killed()
    mine = site.dir / checkpoint_id / "tp0_fsdp1"
    shutil.rmtree(mine)
    if checkpoint_id == "again":
        shutil.copytree(site.dir / "earlier", mine)
    if agents == "gone":
        for series in (site.dir / "run").iterdir():
            site.config["job"] = series.name
            site.kill_agents()
    assert run(tmp_path, "test_sagemaker:loaded", checkpoint_id=checkpoint_id, **arguments) == [[3.0]] * 2


def sharded(rank, world, config, directory, reference):
    model, optimizer = models.make("fsdp")
    model(torch.randn(4, models.WIDTH)).square().mean().backward()
    optimizer.step()
    weights, moments = get_state_dict(model, optimizer)
    sm.configure(config=config)
    state = {"model": weights, "optimizer": moments, "epoch": 3}
    sm.save(state, checkpoint_id=f"{directory}/step-40/tp0_ep0")
    whole = {key: value.full_tensor() if hasattr(value, "full_tensor") else value for key, value in weights.items()}
    if rank == 0:
        torch.save(whole, reference)
    part = dist.new_group([1])
    if rank == 1:
        sm.init({"hybrid_shard_degree": 1})
        with pytest.raises(tierckpt.InvalidArgumentError, match="process_group has no rank 0"):
            sm.async_save(state, checkpoint_id="step-41", process_group=part)
    sm.close()


def test_sharded_state_is_loaded_by_one_rank(tmp_path, site, nursery):
    reference = str(tmp_path / "reference.pt")
    config = {**site.config, "save_storage_interval": 40}
    directory = str(site.dir)
    run(tmp_path, "test_sagemaker:sharded", nursery=nursery, world=2, config=config, directory=directory,
        reference=reference)
    expected = torch.load(reference)
    state = {"model": {key: torch.full_like(value, 99) for key, value in expected.items()}, "epoch": None}
    sm.load(state, checkpoint_id=f"{directory}/step-40/tp0_ep0")
    sm.close()
    assert state["epoch"] == 3
    assert all(torch.equal(state["model"][key], value) for key, value in expected.items())


# ---- incorrect use


@pytest.fixture
def configured(site, monkeypatch):
    monkeypatch.chdir(site.dir)
    sm.configure(config=site.config)
    yield {"w": torch.arange(4.0), "step": 1}
    sm.close(job_done=True)


def test_a_checkpoint_without_a_name_is_one_error(configured):
    for call in (sm.async_save, sm.save, sm.load, sm.newest):
        with pytest.raises(tierckpt.InvalidArgumentError, match="checkpoint_id= is required"):
            call(configured)


@pytest.mark.parametrize("keyword", ["planner", "queue", "sharded_strategy", "s3_region",
                                     "s3client_config"])
def test_unsupported_keyword_is_one_error(configured, keyword):
    with pytest.raises(tierckpt.UnsupportedError, match=f"{keyword} cannot be used"):
        sm.async_save(configured, checkpoint_id="step-1", **{keyword: object()})


def test_other_storage_is_one_error(configured):
    with pytest.raises(tierckpt.UnsupportedError, match="gs://bucket/step-1 is a URL: "):
        sm.async_save(configured, checkpoint_id="gs://bucket/step-1")
    with pytest.raises(tierckpt.ConfigError, match="s3://bucket/step-1 is in a bucket, and save_dir .* is not"):
        sm.async_save(configured, checkpoint_id="s3://bucket/step-1")
    with pytest.raises(tierckpt.UnsupportedError, match="a object cannot be used"):
        sm.load(configured, storage_reader=object())
    with pytest.raises(tierckpt.UnsupportedError, match="a object cannot be used"):
        sm.async_save(configured, checkpoint_id="step-1", storage_writer=object())
    with pytest.raises(tierckpt.UnsupportedError, match="thread_count"):
        sm.DistributedFileSystemWriter("step-1", thread_count=2)


def test_accepted_keywords_change_nothing(configured):
    sm.async_save(configured, checkpoint_id="run/checkpoint-7", coordinator_rank=0, wait_error_handling=False,
                  force_check_all_plans=False)
    assert sm.maybe_finalize_async_calls(blocking=True, process_group=None) == [0]
    assert sm.maybe_finalize_async_calls(blocking=False) == []
    loaded = {"w": torch.zeros(4), "step": None}
    sm.load(loaded, checkpoint_id="run/checkpoint-7", check_keys_matched=False, coordinator_rank=0)
    assert torch.equal(loaded["w"], configured["w"]) and loaded["step"] == 1


# ---- examples


def launch(example, ranks, path, steps):
    """Runs the example with torchrun, as a user does, in the directory of its configuration."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", str(example),
               str(path), str(steps)]
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, cwd=path.parent, capture_output=True, text=True, timeout=300,
                          check=False)
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
