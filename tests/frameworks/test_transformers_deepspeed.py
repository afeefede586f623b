# SPDX-License-Identifier: Apache-2.0
"""TrainerWrapper around a Trainer that trains with DeepSpeed."""

import functools
import importlib.util
import random
import shutil

import pytest
from harness import Job, Nursery, run

pytest.importorskip("transformers", reason="transformers is not installed")
if importlib.util.find_spec("deepspeed") is None:
    pytest.skip("deepspeed is not installed", allow_module_level=True)

STEPS = 7
TRAIN = "hf_ds_training:train"


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("nursery"), "hf_ds_training") as nursery:
        yield nursery


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    """ZeRO stage -> what each rank ends with, by the plain Trainer; each is run once."""
    @functools.cache
    def results(stage):
        tmp_path = tmp_path_factory.mktemp("uninterrupted")
        return run(tmp_path, TRAIN, world=2, nursery=nursery, output_dir=str(tmp_path / "out"), steps=STEPS,
                   stage=stage)

    return results


@pytest.fixture
def job(tmp_path, site, nursery):
    """Runs trainings of one job: job.train(...), job.killed(...)."""
    class Runs:
        def __init__(self):
            self.arguments = {"output_dir": str(tmp_path / "out"), "steps": STEPS, "config": site.config, "world": 2,
                              "nursery": nursery}

        def train(self, **arguments):
            return run(tmp_path, TRAIN, **{**self.arguments, **arguments})

        def killed(self, **arguments):
            with Job(tmp_path, TRAIN, **{**self.arguments, **arguments}) as job:
                job.killed()

    return Runs()


def assert_equal(ranks, reference):
    assert [rank["losses"] for rank in ranks] == [rank["losses"] for rank in reference]
    assert [rank["digest"] for rank in ranks] == [rank["digest"] for rank in reference]


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_killed_and_restored_from_memory_ends_with_equal_bits(job, uninterrupted, stage):
    step = random.Random(stage).randint(2, STEPS - 1)
    job.killed(stage=stage, die_at=step, sure=step - 1)
    ranks = job.train(stage=stage)
    assert all(step - 1 <= rank["resumed"] <= step for rank in ranks)
    assert all(rank["source"]["bytes_local"] > 0 for rank in ranks)
    assert_equal(ranks, uninterrupted(stage))


def test_a_lost_node_is_made_good_from_the_other(job, site, uninterrupted):
    both = {"stage": 3, "config": {**site.config, "copies": 2}, "own_nodes": True}
    job.killed(die_at=4, **both)
    site.kill_agents("node1")
    ranks = job.train(**both)
    assert [rank["resumed"] for rank in ranks] == [4, 4]
    assert ranks[1]["source"]["bytes_local"] == 0 and ranks[1]["source"]["bytes_peer"] > 0
    assert_equal(ranks, uninterrupted(3))


def test_agents_that_lose_their_memory_have_it_from_storage(job, site, uninterrupted):
    both = {"stage": 2, "config": {**site.config, "save_mem_interval": "off"}, "save_strategy": "steps",
            "save_steps": 3}
    job.killed(die_at=4, sure=3, stage_of_death="drained", **both)
    site.kill_agents()
    ranks = job.train(**both)
    assert [rank["resumed"] for rank in ranks] == [3, 3]
    assert all(rank["source"]["bytes_storage"] > 0 for rank in ranks)
    assert_equal(ranks, uninterrupted(2))


def test_nothing_to_resume_from_is_a_fresh_start(job, uninterrupted):
    ranks = job.train(stage=2)
    assert [rank["resumed"] for rank in ranks] == [0, 0]
    assert "nothing to resume from: a fresh start" in ranks[0]["log"]
    assert_equal(ranks, uninterrupted(2))


def test_what_a_plain_trainer_has_saved_is_gone_on_from(tmp_path, job, uninterrupted):
    output_dir = tmp_path / "out"
    job.train(stage=2, config=None, save_strategy="steps", save_steps=4)
    shutil.rmtree(output_dir / f"checkpoint-{STEPS}")
    ranks = job.train(stage=2)
    assert [rank["resumed"] for rank in ranks] == [4, 4]
    assert_equal(ranks, uninterrupted(2))
