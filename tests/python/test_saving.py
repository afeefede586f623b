# SPDX-License-Identifier: Apache-2.0
"""Saving never stops training: a save that is not possible is skipped, and the result says why."""

import contextlib
import json
import re
from dataclasses import asdict

import pytest
import torch
from torch import nn

import tierckpt
from harness import run


class Position:
    """A data loader's state_dict, which fails on request."""

    def __init__(self):
        self.value = 0
        self.error = None

    def state_dict(self):
        if self.error is not None:
            raise self.error
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


class Job:
    def __init__(self, site, optimizer=torch.optim.SGD, **arguments):
        self.model = nn.Linear(64, 64)
        self.optimizer = optimizer(self.model.parameters(), lr=0.1)
        self.position = Position()
        self.checkpoint = tierckpt.init(model=self.model, optimizer=self.optimizer, extra_state=self.position,
                                        config=site.config, **arguments)

    def loss(self):
        self.optimizer.zero_grad()
        loss = self.model(torch.ones(1, 64)).square().sum()
        loss.backward()
        return loss

    def step(self):
        self.loss()
        self.optimizer.step()


@pytest.fixture
def job(site):
    job = Job(site)
    yield job
    job.checkpoint.close()


def warnings(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_the_result_says_what_happened(site):
    site.config["save_mem_interval"] = 2
    job = Job(site)
    not_due, started = (job.checkpoint.save_checkpoint_if_needed(step) for step in (1, 2))
    job.checkpoint.wait("committed")
    assert (not_due.state, started.state, started.step) == ("not due", "started", 2)
    assert not not_due and started and not started.skipped
    assert repr(started) == "<SaveResult step 2 started>"
    assert json.loads(json.dumps(asdict(started))) == {"state": "started", "step": 2, "reason": None}
    job.checkpoint.close()


def test_steps_of_an_optimizer_may_be_missing_between_saves(job):
    """A GradScaler that found an inf skips steps, and so does gradient accumulation."""
    for step in range(1, 30):
        job.checkpoint.save_checkpoint_if_needed(step)
    assert job.checkpoint.save_checkpoint(30).step == 30


@pytest.mark.parametrize("error, remedy", [
    (ValueError("the loader is shut"), "ValueError: the loader is shut"),
    (None, r"init\(capacity="),
    ("type", "cannot be saved"),
])
def test_a_state_that_cannot_be_taken_skips_the_save_with_one_warning(job, caplog, error, remedy):
    assert job.checkpoint.save_checkpoint_if_needed(1)
    job.checkpoint.wait("committed")
    if isinstance(error, Exception):
        job.position.error = error
    else:
        job.position.value = object() if error == "type" else "x" * 100000
    for step in (2, 3, 4):
        result = job.checkpoint.save_checkpoint_if_needed(step)
        assert result.skipped and not result
        job.step()
    assert len(warnings(caplog)) == 1
    assert re.search(remedy, warnings(caplog)[0]), warnings(caplog)
    assert job.checkpoint.query().step == 1
    job.position.value, job.position.error = 5, None
    assert job.checkpoint.save_checkpoint_if_needed(5)
    job.checkpoint.wait("committed")


@pytest.mark.parametrize("step", [1.5, "3", None, -1, 2**64, torch.tensor([1, 2])])
def test_what_is_no_step_is_refused_by_name(job, step):
    for save in (job.checkpoint.save_checkpoint_if_needed, job.checkpoint.save_checkpoint, job.checkpoint.save_last):
        with pytest.raises(tierckpt.InvalidArgumentError, match="step"):
            save(step)


def test_a_step_may_be_any_whole_number(job):
    import numpy

    assert job.checkpoint.save_checkpoint(numpy.int64(3))
    assert job.checkpoint.save_checkpoint(torch.tensor(4))


class Climber(torch.optim.Optimizer):
    """Changes its parameters several times within one step, as closure-based optimizers do."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})
        for parameter in self.param_groups[0]["params"]:
            self.state[parameter]["moves"] = torch.zeros(())

    @torch.no_grad()
    def step(self, closure):
        for _ in range(5):
            with torch.enable_grad():
                closure()
            for parameter in self.param_groups[0]["params"]:
                parameter -= 1e-4 * parameter.grad
                self.state[parameter]["moves"] += 1


def settle(checkpoint, steps):
    """Waits for the saves, because an agent on a busy machine may have no free slot right after other saves."""
    for step in steps:
        with contextlib.suppress(tierckpt.CanceledError):
            checkpoint.wait("committed", step)


def test_an_optimizer_with_a_closure_changes_nothing_that_is_being_saved(site):
    job = Job(site, optimizer=Climber)
    saved = {}
    for step in range(1, 6):
        job.optimizer.step(job.loss)
        if step == 5:
            settle(job.checkpoint, saved)
        job.checkpoint.save_checkpoint(step)
        saved[step] = job.model.weight.detach().clone()
    job.optimizer.step(job.loss)
    job.checkpoint.wait("committed")
    assert job.checkpoint.load_checkpoint() == 5
    assert torch.equal(job.model.weight, saved[5])
    job.checkpoint.close()


def fail_on_one_rank(rank, world, config):
    model = nn.Linear(8, 8)
    position = Position()
    checkpoint = tierckpt.init(model=model, extra_state=position, config=config,
                               replicate_group=tierckpt.PRIVATE)
    committed, results = [], []
    for step in (1, 2, 3):
        position.error = ValueError("broken") if rank == 1 and step == 2 else None
        results.append(checkpoint.save_checkpoint(step).state)
        try:
            checkpoint.wait("committed", step, timeout=30)
            committed.append(step)
        except tierckpt.Error as error:
            committed.append(type(error).__name__)
        torch.distributed.barrier()
    try:
        position.error = ValueError("broken") if rank == 1 else None
        checkpoint.save_last(4)
    except tierckpt.CanceledError as error:
        results.append(str(error))
    checkpoint.close()
    return results, committed


def test_a_rank_that_cannot_save_keeps_a_version_from_committing_and_nobody_waiting(tmp_path, site):
    (zero, of_zero), (one, of_one) = run(tmp_path, "test_saving:fail_on_one_rank", world=2, config=site.config)
    assert of_zero == [1, "CanceledError", 3]
    assert of_one == [1, "CanceledError", 3]
    assert zero[:3] == ["started"] * 3 and one[:3] == ["started", "skipped", "started"]
    assert zero[3] == one[3] == "step 4 cannot be saved: rank 1: ValueError: broken"


def test_steps_that_go_back_are_refused_loudly(job, caplog):
    """As with a counter that restarts in each epoch."""
    for step in range(1, 9):
        assert job.checkpoint.save_checkpoint_if_needed(step)
        job.checkpoint.wait("committed")
    for step in range(1, 8):
        result = job.checkpoint.save_checkpoint_if_needed(step)
        assert result.skipped and f"step {step} comes after step 8" in result.reason, result
    with pytest.raises(tierckpt.InvalidArgumentError,
                       match="step 4 comes after step 8: steps must grow over the whole run"):
        job.checkpoint.save_checkpoint(4)
    with pytest.raises(tierckpt.NotFoundError, match="step 4 was not saved"):
        job.checkpoint.wait("committed", 4)
    assert job.checkpoint.save_checkpoint_if_needed(8).reason == "step 8 is saved already"
    assert job.checkpoint.save_checkpoint_if_needed(9)
    job.checkpoint.wait("committed")


def test_a_smaller_step_is_fine_after_the_load_of_an_older_one(job):
    for step in (1, 2, 3):
        job.checkpoint.save_checkpoint(step, to_storage=step == 1)
        job.checkpoint.wait("drained" if step == 1 else "committed")
    assert job.checkpoint.load_checkpoint(step=1) == 1
    assert job.checkpoint.save_checkpoint(2)
    job.checkpoint.wait("committed", 2)


def test_a_step_that_is_in_memory_is_saved_to_storage_on_request(job):
    assert job.checkpoint.save_checkpoint_if_needed(1)
    assert job.checkpoint.save_checkpoint(1, to_storage=True)
    job.checkpoint.wait("drained", 1)
    assert job.checkpoint.save_checkpoint(2)
    job.checkpoint.wait("committed", 2)
    assert job.checkpoint.save_checkpoint(2, to_storage=True)
    job.checkpoint.wait("drained", 2)
    assert job.checkpoint.save_checkpoint(2, to_storage=True).skipped


def test_close_after_a_failed_save_last_keeps_memory(site, caplog, monkeypatch):
    job = Job(site)
    job.checkpoint.save_checkpoint(7)
    job.checkpoint.wait("committed")
    job.position.error = ValueError("broken")
    with pytest.raises(tierckpt.CanceledError, match="rank 0: ValueError: broken"):
        job.checkpoint.save_last(8)
    job.checkpoint.close()
    assert "the agents keep their memory" in caplog.text
    successor = Job(site)
    assert successor.checkpoint.load_checkpoint() == 7
    successor.checkpoint.close()
