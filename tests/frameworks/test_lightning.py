# SPDX-License-Identifier: Apache-2.0
"""TierCheckpoint with the real Lightning on one rank. tests/programs has a test with two ranks."""

import functools
import os
import shutil
import subprocess
import sys

import pytest

import place
from harness import Job, run

pytest.importorskip("lightning", reason="lightning is not installed")

NURSERY = "lightning_training"
TRAIN = "lightning_training:train"


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    """The final state with Lightning alone; each case is run once."""
    def results(**arguments):
        tmp_path = tmp_path_factory.mktemp("uninterrupted")
        result, = run(tmp_path, TRAIN, nursery=nursery, directory=str(tmp_path / "out"), **arguments)
        return result

    return functools.cache(results)


@pytest.fixture
def job(tmp_path, site, nursery):
    class Runs:
        directory = tmp_path / "out"

        def train(self, **arguments):
            given = {"directory": str(self.directory), "config": site.config, **arguments}
            return run(tmp_path, TRAIN, nursery=nursery, **given)[0]

        def killed(self, **arguments):
            given = {"directory": str(self.directory), "config": site.config, **arguments}
            with Job(tmp_path, TRAIN, nursery=nursery, **given) as job:
                job.killed()

    return Runs()


def assert_equal(result, reference):
    assert result["state"] == reference["state"]
    assert sorted(set(result["losses"])) == sorted(set(reference["losses"]))
    assert result["digest"] == reference["digest"]


# Batches at which the job is killed: within the first epoch, at the start of the second and within it, and the last
# batch.
@pytest.mark.parametrize("batch", [1, 4, 6, 9, 17])
def test_killed_in_any_batch_ends_with_equal_bits(job, uninterrupted, batch):
    job.killed(die_at=batch)
    result = job.train()
    assert result["resumed"] == batch and result["source"] == "memory"
    assert_equal(result, uninterrupted())


@pytest.mark.parametrize("case", [
    {"kind": "Plateau", "best": True, "die_at": 8},
    {"kind": "Plateau", "best": True, "die_at": 12, "val_check_interval": 3},
    {"accumulate_grad_batches": 4, "die_at": 10, "steps": 3},
    {"kind": "Two", "die_at": 7, "steps": 14},
    {"scaler": True, "die_at": 9},
    {"workers": 2, "die_at": 8},
    {"max_steps": 15, "max_epochs": -1, "die_at": 7},
    {"reload_dataloaders_every_n_epochs": 1, "die_at": 8},
], ids=["plateau", "several validations", "accumulation", "two optimizers", "scaler", "workers", "max_steps", "reload"])
def test_all_state_of_lightning_is_restored(job, uninterrupted, case):
    case = dict(case)
    die_at, steps = case.pop("die_at"), case.pop("steps", None)
    job.killed(die_at=die_at, **case)
    result = job.train(**case)
    assert result["resumed"] == (steps or die_at)
    assert_equal(result, uninterrupted(**case))


@pytest.mark.parametrize("batch", [4, 6, 9])
def test_a_loader_with_a_state_puts_itself_in_place(job, uninterrupted, batch):
    pytest.importorskip("torchdata", reason="torchdata is not installed")
    job.killed(die_at=batch, stateful=True, workers=1)
    result = job.train(stateful=True, workers=1)
    assert result["resumed"] == batch
    assert_equal(result, uninterrupted(stateful=True, workers=1))


def test_from_storage(job, site, uninterrupted):
    config = {**site.config, "save_storage_interval": 3}
    job.killed(die_at=9, stage="drained", config=config)
    site.kill_agents()
    result = job.train(config=config)
    assert result["resumed"] in (6, 9) and result["source"] == "storage"
    assert_equal(result, uninterrupted())


@pytest.mark.parametrize("arguments", [{"max_epochs": 2}, {"max_epochs": -1, "max_steps": 8}], ids=["epochs", "steps"])
def test_a_training_that_has_ended_can_be_made_longer(job, uninterrupted, arguments):
    ended = job.train(**arguments)
    again = job.train(**arguments)
    assert again["losses"] == ended["losses"]
    longer = {"max_epochs": 3} if arguments["max_epochs"] == 2 else {"max_epochs": -1, "max_steps": 18}
    result = job.train(**longer)
    assert result["resumed"] == arguments.get("max_steps", 12)
    assert_equal(result, uninterrupted(**longer))


def test_a_weight_that_is_written_to_while_it_is_copied_makes_no_version(tmp_path, site, nursery):
    assert run(tmp_path, "lightning_training:written", nursery=nursery, directory=str(tmp_path / "out"),
               config=site.config) == [True]


def test_a_training_that_raises_leaves_its_memory(job, uninterrupted):
    assert job.train(raise_at=7) == {"closed": True}
    result = job.train()
    assert result["resumed"] == 7
    assert_equal(result, uninterrupted())


def test_the_newer_one_of_ours_and_ckpt_path_is_taken(job, site, tmp_path, nursery, uninterrupted):
    saved, = run(tmp_path, "lightning_training:files", nursery=nursery, directory=str(tmp_path / "files"),
                 config={**site.config, "job": "files", "save_dir": str(site.dir / "files")})
    assert saved["same"] and saved["steps"] == 12
    assert saved["written"] == ["epoch=0-step=2.ckpt", "epoch=0-step=4.ckpt", "epoch=0-step=6.ckpt"]
    path = str(tmp_path / "files" / "after.ckpt")
    assert job.train(ckpt_path=path, max_epochs=2)["resumed"] == 6  # nothing of ours
    shutil.rmtree(job.directory)
    assert job.train(ckpt_path=path, max_epochs=3)["resumed"] == 12  # ours


def test_what_is_not_known_is_refused(tmp_path, site, nursery):
    text, = run(tmp_path, "lightning_training:unsupported", nursery=nursery, directory=str(tmp_path / "out"),
                config=site.config)
    assert text.startswith("UnsupportedError: a hook on_save_checkpoint puts ")
    assert "make it one, e.g. an AveragedModel as a submodule" in text


def test_another_lightning_trains_without_tierckpt(tmp_path, site, nursery):
    result, = run(tmp_path, "lightning_training:another_lightning", nursery=nursery, directory=str(tmp_path / "out"),
                  config=site.config)
    assert result["steps"] == 6 and len(result["log"]) == 1
    assert "tierckpt.lightning is off" in result["log"][0] and "dump_checkpoint" in result["log"][0]


def test_the_example_continues_where_it_stopped(tmp_path, site, top):
    environment = {**os.environ, "TIERCKPT_RUNTIME_DIR": str(site.dir / "run")}
    if not place.INSTALLED:
        environment["PYTHONPATH"] = os.pathsep.join([str(top / "python"), os.environ.get("PYTHONPATH", "")])
    for epochs in (1, 2):
        done = subprocess.run([sys.executable, str(top / "python/examples/lightning_trainer.py"), str(tmp_path / "out"),
                               str(epochs)], env=environment, capture_output=True, text=True, timeout=200, check=False)
        assert f"trained to step {8 * epochs}" in done.stdout, done.stderr
