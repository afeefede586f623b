# SPDX-License-Identifier: Apache-2.0
"""A job that is killed and restarted ends with the same bits as an uninterrupted one."""

import functools

import pytest

from harness import Job, run

STEPS = 6


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A function of (kind, world) that returns the final digest of each rank; each combination is run once."""
    @functools.cache
    def digests(kind, world):
        ranks = run(tmp_path_factory.mktemp(kind), "training:train", world=world, kind=kind, steps=STEPS)
        return [digest for _, _, digest in ranks]

    return digests


def killed_at(tmp_path, step, **arguments):
    with Job(tmp_path, "training:train", steps=STEPS, die_at=step, **arguments) as job:
        job.killed()


@pytest.mark.parametrize("kind, world", [("plain", 1), ("zero", 2), ("fsdp", 2), ("hsdp", 4)])
def test_resumed_job_ends_with_equal_bits(tmp_path, site, uninterrupted, kind, world):
    killed_at(tmp_path, 3, world=world, kind=kind, config=site.config)
    resumed = run(tmp_path, "training:train", world=world, kind=kind, steps=STEPS, config=site.config)
    assert [rank[0] for rank in resumed] == [3] * world
    assert all(rank[1]["bytes_local"] > 0 for rank in resumed)
    assert [rank[2] for rank in resumed] == uninterrupted(kind, world)
    assert site.agents_left(within_s=60) == []


@pytest.mark.parametrize("kind, source", [("zero", "bytes_peer"), ("ddp", "bytes_twin")])
def test_lost_node_is_restored_from_the_other(tmp_path, site, uninterrupted, kind, source):
    """Private shards are restored from the copy that a peer held, those of twins from the twin's node."""
    config = {**site.config, "copies": 2}
    killed_at(tmp_path, 3, world=2, kind=kind, config=config, own_nodes=True)
    site.kill_agents("node1")
    resumed = run(tmp_path, "training:train", world=2, kind=kind, steps=STEPS, config=config, own_nodes=True)
    assert [rank[0] for rank in resumed] == [3, 3]
    assert resumed[0][1]["bytes_local"] > 0 and resumed[1][1]["bytes_local"] == 0 and resumed[1][1][source] > 0
    assert [rank[2] for rank in resumed] == uninterrupted(kind, 2)


def test_agents_that_lose_their_memory_restore_from_storage(tmp_path, site, uninterrupted):
    config = {**site.config, "save_mem_interval": "off"}
    with Job(tmp_path, "training:train", world=2, kind="fsdp", steps=STEPS, config=config, storage_at=4) as job:
        job.results()
    site.kill_agents()
    resumed = run(tmp_path, "training:train", world=2, kind="fsdp", steps=STEPS, config=config)
    assert [rank[0] for rank in resumed] == [4, 4]
    assert all(rank[1]["bytes_storage"] > 0 for rank in resumed)
    assert [rank[2] for rank in resumed] == uninterrupted("fsdp", 2)


@pytest.mark.parametrize("kind, world", [("plain", 1), ("fsdp", 2)])
def test_training_continues_from_an_older_step_after_later_saves(tmp_path, site, uninterrupted, kind, world):
    ranks = run(tmp_path, "training:train", world=world, kind=kind, steps=STEPS, config=site.config, back_to=3)
    assert [rank[0] for rank in ranks] == [3] * world
    assert [rank[2] for rank in ranks] == uninterrupted(kind, world)
