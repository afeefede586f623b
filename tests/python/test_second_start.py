# SPDX-License-Identifier: Apache-2.0
"""A job that is started a second time while it trains: the second start is refused or takes over, and the first one
never loses the job without an error."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import tierckpt

SECOND = Path(__file__).parent / "second_start.py"


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    """Removes everything that would identify two starts as one run."""
    for name in ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"):
        monkeypatch.delenv(name, raising=False)


class Training:
    def __init__(self, site, **overrides):
        self.model = nn.Linear(64, 64)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        self.checkpoint = tierckpt.init(model=self.model, optimizer=self.optimizer, config=site.config,
                                        overrides=overrides)

    def save(self, step):
        self.optimizer.zero_grad()
        self.model(torch.ones(1, 64)).square().sum().backward()
        self.optimizer.step()
        return self.checkpoint.save_checkpoint(step)


class SecondStart:
    """A second start in a separate process."""

    def __init__(self, site, steps=2, **overrides):
        self.process = subprocess.Popen([sys.executable, str(SECOND), json.dumps({**site.config, **overrides}),
                                         str(steps)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self):
        return self.process.stdout.readline().strip()

    def end(self):
        self.process.communicate("\n", timeout=60)

    def kill(self):
        self.process.kill()
        self.process.communicate()


def test_a_second_start_is_refused_and_the_first_goes_on(site):
    training = Training(site)
    assert training.save(1)
    training.checkpoint.wait("committed")
    second = SecondStart(site)
    said = second.line()
    second.end()
    assert said.startswith("ExistsError: ") and "trainers are alive" in said and "takeover" in said, said
    assert training.save(2)
    training.checkpoint.wait("committed")
    assert training.checkpoint.query().step == 2
    training.checkpoint.close()


def test_a_start_after_the_trainers_death_is_not_refused(site):
    first = SecondStart(site, steps=3)
    assert first.line() == "loaded 0"
    assert first.line() == "at 3"
    first.kill()
    training = Training(site)
    assert training.checkpoint.load_checkpoint() == 3
    training.checkpoint.close()


def test_a_training_that_was_taken_over_says_so_and_cannot_take_the_job_back(site, caplog):
    training = Training(site)
    assert training.save(1)
    training.checkpoint.wait("committed")
    second = SecondStart(site, steps=2, takeover="on")
    assert second.line() == "loaded 1"
    assert second.line() == "at 3"
    results = [training.save(step) for step in range(2, 5)]
    assert not any(results)
    assert "taken it over" in results[-1].reason and f"pid {second.process.pid}" in results[-1].reason
    errors_told = [record for record in caplog.records if record.levelname == "ERROR"]
    assert len(errors_told) == 1 and "taken it over" in errors_told[0].getMessage()
    with pytest.raises(tierckpt.errors.DeniedError, match=f"pid {second.process.pid}"):
        training.checkpoint.save_last(30, timeout=20)
    training.checkpoint.close(job_done=True)
    second.end()  # its agent is still running, so it detaches without an error
    with tierckpt.init(model=training.model, optimizer=training.optimizer, config=site.config) as after:
        assert after.load_checkpoint() == 3


def test_an_evaluation_that_a_trainer_starts_is_a_second_start_although_it_inherits_the_run(site, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "of the trainer")
    training = Training(site)
    assert training.save(1)
    second = SecondStart(site)
    said = second.line()
    second.end()
    assert said.startswith("ExistsError: "), said
    training.checkpoint.close()


def test_a_process_that_attaches_again_goes_on_with_its_own_job(site):
    first = Training(site)
    assert first.save(1)
    first.checkpoint.wait("committed")
    again = Training(site)
    assert again.checkpoint.load_checkpoint() == 1
    assert again.save(2)
    again.checkpoint.wait("committed")
    again.checkpoint.close()
    first.checkpoint.close(job_done=False)


def test_saves_of_a_run_that_has_loaded_nothing_warn_of_what_is_there(site, caplog):
    first = Training(site)
    for step in range(1, 4):
        assert first.save(step)
        first.checkpoint.wait("committed")
    first.checkpoint.close(job_done=False)
    assert not [record for record in caplog.records if "could have been loaded" in record.getMessage()]
    forgetful = Training(site)
    for step in range(1, 4):
        assert forgetful.save(step)
        forgetful.checkpoint.wait("copied")
    told = [record.getMessage() for record in caplog.records if "could have been loaded" in record.getMessage()]
    assert len(told) == 1 and told[0].startswith("step 3 (term 1)"), told
    forgetful.checkpoint.close()
