# SPDX-License-Identifier: Apache-2.0
"""TrainerWrapper with the real Trainer, with and without DistributedDataParallel."""

import functools
import random
import shutil
import types

import pytest

import tierckpt
from harness import Job, run
from tierckpt.adapters.hf_copied import CopiedCheckpoints
from tierckpt.adapters.hf_layout import WrittenCheckpoints
from tierckpt.runtime.world import Oob, World

pytest.importorskip("transformers", reason="transformers is not installed")

NURSERY = "hf_training"
STEPS = 8
TRAIN = "hf_training:train"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    """A function of world that returns the final state of each rank with the plain Trainer; each is run once."""
    @functools.cache
    def results(world, **arguments):
        tmp_path = tmp_path_factory.mktemp("uninterrupted")
        return run(tmp_path, TRAIN, world=world, nursery=nursery, output_dir=str(tmp_path / "out"), steps=STEPS,
                   resume=False, **arguments)

    return results


@pytest.fixture
def job(tmp_path, site, nursery):
    """Runs trainings of one job: job.train(...), job.killed(...)."""
    class Runs:
        output_dir = tmp_path / "out"

        def __init__(self):
            self.arguments = {"output_dir": str(self.output_dir), "steps": STEPS, "config": site.config}

        def train(self, world, **arguments):
            return run(tmp_path, TRAIN, world=world, nursery=nursery, **{**self.arguments, **arguments})

        def killed(self, world, **arguments):
            with Job(tmp_path, TRAIN, world=world, nursery=nursery, **{**self.arguments, **arguments}) as job:
                job.killed()

        def checkpoints(self):
            return sorted(path.name for path in self.output_dir.iterdir() if "checkpoint" in path.name)

    return Runs()


def assert_equal(ranks, reference):
    assert [rank["losses"] for rank in ranks] == [rank["losses"] for rank in reference]
    assert [rank["digest"] for rank in ranks] == [rank["digest"] for rank in reference]


@pytest.mark.parametrize("world, in_flight", [(1, True), (2, False), (2, True)])
def test_killed_and_restored_from_memory_ends_with_equal_bits(job, uninterrupted, world, in_flight):
    step = random.Random(world * 10 + in_flight).randint(2, STEPS - 1)
    sure = step - 1 if in_flight else step
    job.killed(world, die_at=step, sure=sure)
    ranks = job.train(world)
    assert all(sure <= rank["resumed"] <= step for rank in ranks)
    assert all(rank["source"]["bytes_local"] > 0 for rank in ranks)
    assert_equal(ranks, uninterrupted(world))


def test_four_ranks_add_in_the_same_order_after_a_restart(job, site):
    """DistributedDataParallel changes its buckets after the first step, which must not change the order of sums of more
    than two values."""
    few = {"max_steps": 4, "kind": "twisted", "ddp_find_unused_parameters": False}
    fresh = job.train(4, config={**site.config, "job": "fresh"}, **few)
    assert [rank["resumed"] for rank in fresh] == [0] * 4 and "nothing to resume from: a fresh start" in fresh[0]["log"]
    job.killed(4, die_at=2, **few)
    assert_equal(job.train(4, **few), fresh)


def test_lost_node_is_restored_from_its_twin(job, site, uninterrupted):
    config = {**site.config, "copies": 2}
    job.killed(2, die_at=5, config=config, own_nodes=True)
    site.kill_agents("node1")
    ranks = job.train(2, config=config, own_nodes=True)
    assert [rank["resumed"] for rank in ranks] == [5, 5]
    assert ranks[1]["source"]["bytes_local"] == 0 and ranks[1]["source"]["bytes_twin"] > 0
    assert_equal(ranks, uninterrupted(2))


def test_from_storage_by_us_and_by_the_plain_trainer(job, site, uninterrupted):
    """save_steps=3 saves 3, 6 and the last step. A published version is also a checkpoint of the plain Trainer."""
    saving = {"save_strategy": "steps", "save_steps": 3}
    job.killed(2, die_at=4, sure=3, stage="drained", half_done=True, **saving)
    site.kill_agents()
    assert job.checkpoints() == ["tmp-checkpoint-3"]
    ranks = job.train(2, **saving)
    assert [rank["resumed"] for rank in ranks] == [3, 3]
    assert all(rank["source"]["bytes_storage"] > 0 for rank in ranks)
    assert_equal(ranks, uninterrupted(2))
    assert job.checkpoints() == ["checkpoint-3", "checkpoint-6", "checkpoint-8"]
    other = job.output_dir.with_name("other")
    shutil.copytree(job.output_dir / "checkpoint-6", other / "checkpoint-6")
    plain = job.train(2, config=None, output_dir=str(other))
    assert_equal(plain, uninterrupted(2))
    # And vice versa: a checkpoint that a plain Trainer has saved is newer than any version of ours.
    for number, resume in enumerate((True, str(other / "checkpoint-6"))):
        ranks = job.train(2, config={**site.config, "job": f"other{number}", "save_dir": str(site.dir / "other")},
                          output_dir=str(other), resume=resume)
        assert [rank["resumed"] for rank in ranks] == [6, 6]
        assert_equal(ranks, uninterrupted(2))


def test_another_number_of_ranks_reads_what_is_on_storage(job, site):
    """A version that two ranks could not complete also becomes a directory of the plain Trainer."""
    job.killed(2, die_at=4, sure=3, stage="drained", half_done=True, save_strategy="steps", save_steps=3)
    site.kill_agents()
    ranks = job.train(1, save_strategy="steps", save_steps=3)
    assert [rank["resumed"] for rank in ranks] == [3]
    assert ranks[0]["source"]["bytes_storage"] > 0, "the library has read it"
    assert any("is read for this number of ranks" in line for line in ranks[0]["log"])
    assert job.checkpoints() == ["checkpoint-3", "checkpoint-6", "checkpoint-8"]
    site.kill_agents()
    assert [rank["resumed"] for rank in job.train(2, steps=9)] == [8, 8]


@pytest.mark.parametrize("world, on_device", [(3, {}), (1, {"turned": True}), (1, {"some": True})],
                         ids=["3", "turned", "some"])
def test_another_number_of_ranks_reads_onto_a_device_in_pieces(job, site, world, on_device):
    """With a stand-in for the device. The training then goes on with what was read."""
    saved = job.train(2, steps=3, save_strategy="steps", save_steps=3)
    site.kill_agents()
    ranks = job.train(world, steps=4, on_device={"piece_bytes": 256, **on_device})
    for rank in ranks:
        assert rank["resumed"] == 3 and rank["loaded"] == saved[0]["trained"]
        assert rank["source"] is None, "the adapter has read it"
        device = rank["device"]
        assert device["largest"] <= 256 and device["copies"] > 2 * device["tensors"] > 20


def test_if_nothing_of_ours_can_be_restored_the_newest_directory_is_taken(job, site):
    job.train(1, steps=3, save_strategy="steps", save_steps=3)
    site.kill_agents()
    for manifest in (site.dir / "save").glob("test/v*/manifest.json"):
        manifest.write_text("damaged")
    ranks = job.train(1, steps=4)
    assert [rank["resumed"] for rank in ranks] == [3]
    assert any("checkpoint-3, the newest that can be loaded" in line for line in ranks[0]["log"])


def test_a_training_that_raises_leaves_its_memory_to_the_next(job, uninterrupted):
    job.train(1, raise_at=3)
    ranks = job.train(1)
    assert 0 < ranks[0]["resumed"] <= 3  # the agent determines which saves are granted, and when
    assert_equal(ranks, uninterrupted(1))


def test_epochs_end_in_the_version_of_their_last_step(job, site, uninterrupted):
    """The evaluation and logging at the end of an epoch is part of the version of its last step."""
    epochs = {"save_strategy": "epoch", "eval_strategy": "epoch"}
    job.killed(1, die_at=6, **epochs)
    ranks = job.train(1, **epochs)
    assert [rank["resumed"] for rank in ranks] == [6]
    assert_equal(ranks, uninterrupted(1, eval_strategy="epoch"))
    assert job.checkpoints() == ["checkpoint-6", "checkpoint-8"]


def test_the_best_model_is_kept_and_loaded_and_nothing_foreign_deleted(job, uninterrupted):
    best = {"save_strategy": "steps", "save_steps": 2, "eval_strategy": "steps", "eval_steps": 2, "save_total_limit": 1,
            "load_best_model_at_end": True, "metric_for_best_model": "eval_loss"}
    (job.output_dir / "checkpoint-1").mkdir(parents=True)
    ranks = job.train(1, resume=False, **best)
    reference = uninterrupted(1, **best)
    assert_equal(ranks, reference)
    assert ranks[0]["best"] == reference[0]["best"]
    assert job.checkpoints() == sorted(["checkpoint-1", ranks[0]["best"]])
    deleted = [line for line in ranks[0]["log"] if line.startswith("deleting")]
    assert len(deleted) == 3 and all(str(job.output_dir / "checkpoint-") in line for line in deleted)


# ---- storage_format framework


LOGGED = {"logging_steps": 3}  # the Trainer's own directories do not have the loss that is not logged yet
THREE = {"save_strategy": "steps", "save_steps": 3, **LOGGED}


@pytest.fixture
def own_format(job, site):
    """The arguments of a training whose storage has the Trainer's own directories alone."""
    job.arguments["config"] = {**site.config, "storage_format": "framework"}
    return job


def versions(site):
    return [path.name for path in (site.dir / "save").rglob("v*.t*")]


def test_with_its_own_format_nothing_is_written_twice_and_the_plain_trainer_resumes(own_format, site, uninterrupted):
    job = own_format
    job.killed(2, die_at=5, sure=3, stage="written", **THREE)
    site.kill_agents()
    assert job.checkpoints() == ["checkpoint-3"]
    other = job.output_dir.with_name("other")
    shutil.copytree(job.output_dir, other)
    ranks = job.train(2, **THREE)
    assert [rank["resumed"] for rank in ranks] == [3, 3]
    assert_equal(ranks, uninterrupted(2, **LOGGED))
    assert job.checkpoints() == ["checkpoint-3", "checkpoint-6", "checkpoint-8"] and versions(site) == []
    assert not any("is lost with the memory" in line for line in ranks[0]["log"])
    assert_equal(job.train(2, config=None, output_dir=str(other), **LOGGED), uninterrupted(2, **LOGGED))
    plain = job.output_dir.with_name("plain")
    assert_equal(job.train(2, config=None, resume=False, output_dir=str(plain), **THREE), uninterrupted(2, **LOGGED))
    for step in (3, 6, 8):
        ours, theirs = (path / f"checkpoint-{step}" for path in (job.output_dir, plain))
        names = {path.name for path in ours.iterdir()} - {".tierckpt"}
        assert names == {path.name for path in theirs.iterdir()}
        assert (ours / "model.safetensors").read_bytes() == (theirs / "model.safetensors").read_bytes()


def test_with_its_own_format_memory_wins_if_it_is_newer(own_format, site, uninterrupted):
    own_format.killed(2, die_at=5, sure=5, **THREE)
    ranks = own_format.train(2, **THREE)
    assert [rank["resumed"] for rank in ranks] == [5, 5]
    assert all(rank["source"]["bytes_local"] > 0 for rank in ranks)
    assert_equal(ranks, uninterrupted(2, **LOGGED))
    assert versions(site) == []


def test_with_its_own_format_another_number_of_ranks_goes_on_as_the_plain_trainer_does(own_format, site):
    job = own_format
    job.killed(2, die_at=5, sure=3, stage="written", **THREE)
    site.kill_agents()
    other = job.output_dir.with_name("other")
    shutil.copytree(job.output_dir, other)
    ranks = job.train(1, **THREE)
    assert [rank["resumed"] for rank in ranks] == [3] and versions(site) == []
    assert job.checkpoints() == ["checkpoint-3", "checkpoint-6", "checkpoint-8"]
    assert_equal(ranks, job.train(1, config=None, output_dir=str(other), **LOGGED))


def test_with_its_own_format_max_ckpt_num_counts_directories(own_format, site):
    job = own_format
    (job.output_dir / "checkpoint-1").mkdir(parents=True)
    job.arguments["config"]["max_ckpt_num"] = 2
    ranks = job.train(1, resume=False, save_strategy="steps", save_steps=2)
    assert job.checkpoints() == ["checkpoint-1", "checkpoint-6", "checkpoint-8"] and versions(site) == []
    deleted = [line for line in ranks[0]["log"] if line.startswith("deleting")]
    assert len(deleted) == 2 and all("max_ckpt_num is 2" in line for line in deleted)


def test_with_its_own_format_a_full_disk_leaves_nothing_by_half(own_format, site, uninterrupted):
    job = own_format
    ranks = job.train(2, no_space_at=6, **THREE)
    assert job.checkpoints() == ["checkpoint-3", "checkpoint-8"]
    assert any("No space left on device" in line for line in ranks[0]["log"])
    assert all(any("checkpoint-6 is not complete" in line for line in rank["log"]) for rank in ranks)
    assert_equal(ranks, uninterrupted(2, **LOGGED))


def test_with_its_own_format_a_last_step_that_failed_stays_in_memory(own_format, site):
    job = own_format
    ranks = job.train(1, no_space_at=8, **THREE)
    assert job.checkpoints() == ["checkpoint-3", "checkpoint-6", "tmp-checkpoint-8"]
    assert any("checkpoint-8 was not written" in line for line in ranks[0]["log"])
    ranks = job.train(1, steps=9, **THREE)
    assert [rank["resumed"] for rank in ranks] == [8] and ranks[0]["source"]["bytes_local"] > 0
    assert job.checkpoints() == ["checkpoint-3", "checkpoint-6", "checkpoint-9"]


def test_with_its_own_format_a_full_temporary_directory_is_logged(tmp_path, caplog):
    def fails(_directory):
        raise OSError(28, "No space left on device")

    args = types.SimpleNamespace(output_dir=str(tmp_path), save_only_model=False, should_save=True)
    trainer = types.SimpleNamespace(args=args, _save_rng_state=fails)
    copied = CopiedCheckpoints(trainer, World(0, 1, Oob()), WrittenCheckpoints(tmp_path, 0))
    copied.write(3, fails)
    copied.close()
    assert "no checkpoint-3: [Errno 28] No space left on device" in caplog.text
    assert not (tmp_path / "checkpoint-3").exists()


def test_a_directory_without_the_optimizer_is_not_loaded_over_torn_state(tmp_path):
    """With save_only_model the Trainer would resume from it without an error."""
    from tierckpt.adapters.transformers import _Adapter

    def fails():
        raise tierckpt.UnrecoverableError("torn")

    adapter = object.__new__(_Adapter)
    args = types.SimpleNamespace(output_dir=str(tmp_path))
    adapter._trainer = types.SimpleNamespace(args=args, is_deepspeed_enabled=False)
    adapter._world, adapter._framework, adapter._load_newest = World(0, 1, Oob()), True, fails
    adapter._load_own = lambda directory: directory
    health = types.SimpleNamespace(records_torn=True)
    adapter.checkpoint = types.SimpleNamespace(health=lambda: health)
    own = tmp_path / "checkpoint-3"
    own.mkdir()
    with pytest.raises(tierckpt.UnrecoverableError, match="torn"):
        adapter._load()
    for name in ("optimizer.pt", "scheduler.pt"):
        (own / name).touch()
    assert adapter._load() == str(own)
    (own / "optimizer.pt").unlink()
    health.records_torn = False
    assert adapter._load() == str(own)


def test_unknown_version_trains_without_tierckpt(tmp_path, job, nursery, uninterrupted):
    arguments = {name: job.arguments[name] for name in ("output_dir", "steps", "config")}
    ranks = run(tmp_path, "hf_training:unknown_version", nursery=nursery, **arguments)
    assert_equal(ranks, uninterrupted(1))
    assert len(ranks[0]["log"]) == 1
    assert "tierckpt.transformers is off" in ranks[0]["log"][0] and "Trainer._save_checkpoint" in ranks[0]["log"][0]


def test_a_weight_that_is_written_to_while_it_is_copied_makes_no_version(tmp_path, site, nursery):
    assert run(tmp_path, "hf_training:written", nursery=nursery, output_dir=str(tmp_path / "out"),
               config=site.config) == [True]


def test_wrong_use_says_what_to_do(tmp_path, nursery):
    texts, = run(tmp_path, "hf_training:wrong_use", nursery=nursery, output_dir=str(tmp_path / "out"))
    plain, each_node, push, fsdp = texts
    assert "take out plain_checkpoints=False, or storage_format" in plain
    assert "take out save_on_each_node=True, or storage_format" in each_node
    assert "call trainer.push_to_hub() after train()" in push
    assert "use DistributedDataParallel or DeepSpeed" in fsdp


def test_long_history_keeps_its_newest_entries(tmp_path, nursery):
    assert run(tmp_path, "hf_training:long_history", nursery=nursery) == [[True] * 5]


def test_the_example_continues_where_it_stopped(tmp_path, site, top, nursery):
    example = {"path": str(top / "python/examples/transformers_trainer.py"), "output_dir": str(tmp_path / "out"),
               "runtime_dir": str(site.dir / "run")}
    for steps in (3, 6):
        with Job(tmp_path, "hf_training:example", world=2, nursery=nursery, steps=steps, **example) as job:
            job.results()
            assert f"trained to step {steps}" in job.log()
    assert (tmp_path / "out/checkpoint-3").is_dir() and (tmp_path / "out/checkpoint-6").is_dir()
