# SPDX-License-Identifier: Apache-2.0
"""TrainerWrapper around a Trainer that trains with DeepSpeed."""

import functools
import importlib.util
import json
import math
import random
import shutil

import pytest

from harness import Job, run

pytest.importorskip("transformers", reason="transformers is not installed")
if importlib.util.find_spec("deepspeed") is None:
    pytest.skip("deepspeed is not installed", allow_module_level=True)
from transformers.trainer_utils import get_last_checkpoint  # noqa: E402

NURSERY = "hf_ds_training"
STEPS = 7
TRAIN = "hf_ds_training:train"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    """A function of the ZeRO stage that returns the final state of each rank with the plain Trainer; each is run
    once."""
    @functools.cache
    def results(stage, **arguments):
        tmp_path = tmp_path_factory.mktemp("uninterrupted")
        return run(tmp_path, TRAIN, world=2, nursery=nursery, output_dir=str(tmp_path / "out"), steps=STEPS,
                   stage=stage, **arguments)

    return results


@pytest.fixture
def job(tmp_path, site, nursery):
    """Runs trainings of one job: job.train(...), job.killed(...)."""
    class Runs:
        output_dir = tmp_path / "out"

        def __init__(self):
            self.arguments = {"output_dir": str(self.output_dir), "steps": STEPS, "config": site.config, "world": 2,
                              "nursery": nursery}

        def train(self, **arguments):
            return run(tmp_path, TRAIN, **{**self.arguments, **arguments})

        def killed(self, **arguments):
            with Job(tmp_path, TRAIN, **{**self.arguments, **arguments}) as job:
                job.killed()

        def checkpoints(self):
            return sorted(path.name for path in self.output_dir.iterdir() if "checkpoint" in path.name)

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


def test_a_lost_node_is_restored_from_the_other(job, site, uninterrupted):
    both = {"stage": 3, "config": {**site.config, "copies": 2}, "own_nodes": True}
    job.killed(die_at=4, **both)
    site.kill_agents("node1")
    ranks = job.train(**both)
    assert [rank["resumed"] for rank in ranks] == [4, 4]
    assert ranks[1]["source"]["bytes_local"] == 0 and ranks[1]["source"]["bytes_peer"] > 0
    assert_equal(ranks, uninterrupted(3))


def test_agents_that_lose_their_memory_restore_from_storage(job, site, uninterrupted):
    both = {"stage": 2, "config": {**site.config, "save_mem_interval": "off"}, "save_strategy": "steps",
            "save_steps": 3}
    job.killed(die_at=4, sure=3, stage_of_death="drained", **both)
    site.kill_agents()
    ranks = job.train(**both)
    assert [rank["resumed"] for rank in ranks] == [3, 3]
    assert all(rank["source"]["bytes_storage"] > 0 for rank in ranks)
    assert_equal(ranks, uninterrupted(2))


@pytest.mark.parametrize("stage, world", [(0, 1), (1, 4), (2, 1), (2, 4), (3, 1), (3, 4)])
def test_another_number_of_ranks_goes_on_with_what_two_had(job, tmp_path, site, stage, world):
    """The bits of weights, masters, moments and schedule are equal. The steps after that cannot be bit-exact: a step
    has as many batches as there are ranks, and each rank draws its own random numbers."""
    both = {"stage": stage, "notes": str(tmp_path)}
    job.killed(die_at=4, sure=3, stage_of_death="drained", save_strategy="steps", save_steps=3,
               **{**both, "config": {**site.config, "save_mem_interval": "off"}})
    site.kill_agents()
    held = json.loads((tmp_path / "held-3.json").read_text())
    ranks = job.train(world=world, **both)
    assert_goes_on(ranks, world, 3, held)


@pytest.mark.parametrize("stage, world", [(2, 4), (3, 1)])
def test_another_number_of_ranks_has_what_only_memory_had(job, tmp_path, stage, world):
    both = {"stage": stage, "notes": str(tmp_path)}
    job.killed(die_at=4, **both)
    held = json.loads((tmp_path / "held-4.json").read_text())
    assert_goes_on(job.train(world=world, **both), world, 4, held)


def assert_goes_on(ranks, world, step, held):
    assert [rank["resumed"] for rank in ranks] == [step] * world
    assert [rank["held"] for rank in ranks] == [held] * world
    assert all(rank["source"]["bytes_storage"] > 0 for rank in ranks), "the library has read it"
    assert any("is read for this number of ranks" in line for line in ranks[0]["log"])
    for rank in ranks:
        assert rank["losses"] == ranks[0]["losses"]
        assert rank["losses"][-1]["step"] == STEPS
        assert all(math.isfinite(entry["loss"]) for entry in rank["losses"] if "loss" in entry)


def test_nothing_to_resume_from_is_a_fresh_start(job, uninterrupted):
    ranks = job.train(stage=2)
    assert [rank["resumed"] for rank in ranks] == [0, 0]
    assert "nothing to resume from: a fresh start" in ranks[0]["log"]
    assert_equal(ranks, uninterrupted(2))


def test_training_continues_from_a_checkpoint_of_the_plain_trainer(tmp_path, job, uninterrupted):
    output_dir = tmp_path / "out"
    job.train(stage=2, config=None, save_strategy="steps", save_steps=4)
    shutil.rmtree(output_dir / f"checkpoint-{STEPS}")
    ranks = job.train(stage=2)
    assert [rank["resumed"] for rank in ranks] == [4, 4]
    assert_equal(ranks, uninterrupted(2))


def files_in(directory):
    return {str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize("stage", [2, 3])
def test_the_plain_trainer_goes_on_from_what_was_saved_to_storage(job, uninterrupted, stage):
    """As it does from its own checkpoints."""
    saving = {"stage": stage, "save_strategy": "steps", "save_steps": 4, "gather": True}
    assert_equal(job.train(**saving), uninterrupted(stage))
    assert job.checkpoints() == ["checkpoint-4", f"checkpoint-{STEPS}"]
    ours, own = job.output_dir, job.output_dir.with_name("own")
    job.train(config=None, output_dir=str(own), **saving)
    for step in (4, STEPS):
        expected = files_in(own / f"checkpoint-{step}") | {".tierckpt"}
        assert files_in(ours / f"checkpoint-{step}") == expected
        for name in ("model.safetensors", "latest"):
            assert (ours / f"checkpoint-{step}" / name).read_bytes() == (own / f"checkpoint-{step}" / name).read_bytes()
    states = [json.loads((directory / "checkpoint-4/trainer_state.json").read_text()) for directory in (ours, own)]
    for state in states:
        del state["stateful_callbacks"]["TrainerControl"]  # depends on whether it was written before or after on_save
    assert states[0] == states[1]
    from_own, from_ours = (job.train(config=None, stage=stage, output_dir=str(directory.with_name("new")),
                                     resume=str(directory / "checkpoint-4")) for directory in (own, ours))
    assert_equal(from_ours, from_own)
    assert_equal(from_ours, uninterrupted(stage))


def test_a_kill_while_files_are_written_leaves_nothing_to_be_found(job, site, uninterrupted):
    saving = {"config": {**site.config, "save_mem_interval": "off"}, "stage": 2, "save_strategy": "steps",
              "save_steps": 3}
    job.killed(die_at=4, sure=3, stage_of_death="drained", half_file_at=3, **saving)
    assert job.checkpoints() == ["tmp-checkpoint-3"]
    assert get_last_checkpoint(job.output_dir) is None
    assert any(name.endswith(".partial") for name in files_in(job.output_dir / "tmp-checkpoint-3"))
    ranks = job.train(**saving)
    assert [rank["resumed"] for rank in ranks] == [3, 3]
    assert_equal(ranks, uninterrupted(2))
    assert job.checkpoints() == ["checkpoint-6", f"checkpoint-{STEPS}"]
    assert any("tmp-checkpoint-3: a save that was cut off" in line for line in ranks[0]["log"])


def test_what_one_rank_cannot_write_is_on_none_complete(job, uninterrupted):
    ranks = job.train(stage=2, save_strategy="steps", save_steps=2, half_file_at=4, error=True)
    assert_equal(ranks, uninterrupted(2))
    assert job.checkpoints() == ["checkpoint-2", "checkpoint-6", f"checkpoint-{STEPS}"]
    for rank in ranks:
        assert any("tmp-checkpoint-4 is not complete" in line for line in rank["log"])


@pytest.mark.parametrize("stage", [2, 3])
def test_in_its_own_format_nothing_is_written_twice(job, site, uninterrupted, stage):
    own = {"stage": stage, "config": {**site.config, "storage_format": "framework", "max_ckpt_num": 2},
           "save_strategy": "steps", "save_steps": 2, "gather": True}
    job.killed(die_at=3, sure=2, stage_of_death="written", **own)
    site.kill_agents()
    assert job.checkpoints() == ["checkpoint-2"]
    other = job.output_dir.with_name("other")
    shutil.copytree(job.output_dir, other)
    ranks = job.train(**own)
    assert [rank["resumed"] for rank in ranks] == [2, 2]
    assert_equal(ranks, uninterrupted(stage))
    assert job.checkpoints() == ["checkpoint-6", f"checkpoint-{STEPS}"]
    assert any("max_ckpt_num is 2" in line for line in ranks[0]["log"])
    assert list((site.dir / "save").rglob("v*.t*")) == [] and list((site.dir / "save").rglob("deepspeed")) == []
    stock = job.train(config=None, stage=stage, output_dir=str(other), resume=True)
    assert_equal(stock, uninterrupted(stage))


def test_the_best_model_is_kept_and_loaded_and_nothing_foreign_deleted(job, uninterrupted):
    best = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "save_total_limit": 1,
            "load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
    (job.output_dir / "checkpoint-1").mkdir(parents=True)
    ranks = job.train(stage=3, resume=False, **best)
    reference = uninterrupted(3, **best)
    assert_equal(ranks, reference)
    assert ranks[0]["best"] == reference[0]["best"] is not None
    assert job.checkpoints() == sorted(["checkpoint-1", ranks[0]["best"]])
    deleted = [line for line in ranks[0]["log"] if line.startswith("deleting")]
    assert len(deleted) == 3 and all(str(job.output_dir / "checkpoint-") in line for line in deleted)


def test_an_unknown_deepspeed_trains_on(job, uninterrupted):
    ranks = job.train(stage=2, save_strategy="steps", save_steps=3, unknown=True)
    assert_equal(ranks, uninterrupted(2))
    assert not job.output_dir.exists() or job.checkpoints() == []
    said = ranks[0]["log"]
    assert "tierckpt.deepspeed is off" in said[0] and any("no checkpoint-<step>" in line for line in said)
