# SPDX-License-Identifier: Apache-2.0
"""Correct and incorrect use of a checkpoint in one process."""

import pytest
import torch
from torch import nn

import tierckpt


class Job:
    def __init__(self, site, **arguments):
        self.model = nn.Linear(3, 2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.checkpoint = tierckpt.init(model=self.model, optimizer=self.optimizer, config=site.config, **arguments)

    def step(self):
        self.model(torch.ones(1, 3)).sum().backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


@pytest.fixture
def job(site):
    job = Job(site)
    yield job
    job.checkpoint.close()


def test_first_start_has_nothing_to_load(job):
    assert job.checkpoint.query() is None
    assert job.checkpoint.load_checkpoint() is None
    assert job.checkpoint.restored is None


def test_load_goes_back_to_the_saved_step(job):
    job.step()
    saved = job.model.weight.detach().clone()
    job.checkpoint.save_checkpoint(1)
    job.checkpoint.wait("committed")
    assert job.checkpoint.query().step == 1
    job.step()
    assert not torch.equal(job.model.weight, saved)
    assert job.checkpoint.load_checkpoint() == 1
    assert torch.equal(job.model.weight, saved)
    assert job.checkpoint.restored.version.step == 1


def test_an_older_step_is_loaded_after_later_saves_and_a_new_line_begins(job):
    weights = {}
    for step in (1, 2, 3):
        job.step()
        weights[step] = job.model.weight.detach().clone()
        job.checkpoint.save_checkpoint(step, to_storage=step == 1)
        job.checkpoint.wait("drained" if step == 1 else "committed")
    assert job.checkpoint.load_checkpoint(step=1) == 1
    assert torch.equal(job.model.weight, weights[1])
    assert job.checkpoint.restored.newest_step == 3
    with torch.no_grad():
        job.model.weight.fill_(5)
    job.checkpoint.save_checkpoint(2)
    job.checkpoint.wait("committed")
    with torch.no_grad():
        job.model.weight.zero_()
    assert job.checkpoint.load_checkpoint() == 2
    assert job.model.weight.unique().tolist() == [5.0]


def test_optimizer_step_waits_for_the_copy(job):
    job.checkpoint.save_checkpoint(1)
    job.step()
    assert job.checkpoint.stats().saves_copied == 1


def test_interval_decides(site):
    site.config["save_mem_interval"] = 3
    job = Job(site)
    started = []
    for step in range(1, 8):
        job.step()
        if job.checkpoint.save_checkpoint_if_needed(step):
            started.append(step)
            job.checkpoint.wait("committed")
    job.checkpoint.close()
    assert started == [3, 6]


def test_moved_parameter_is_followed(job):
    job.checkpoint.save_checkpoint(1)
    job.checkpoint.wait("committed")
    job.model.weight.data = torch.full((2, 3), 7.0)
    job.checkpoint.save_checkpoint(2)
    job.checkpoint.wait("committed")
    with torch.no_grad():
        job.model.weight.zero_()
    assert job.checkpoint.load_checkpoint() == 2
    assert job.model.weight.unique().tolist() == [7.0]


def test_second_save_before_the_fence_is_refused_or_done(job):
    job.checkpoint.save_checkpoint(1)
    job.checkpoint.fence()
    job.checkpoint.wait("copied", timeout=5)


def test_job_done_ends_the_agent(site):
    Job(site).checkpoint.close()
    assert site.agents_left(within_s=60) == []


@pytest.mark.parametrize("to_storage", [False, True])
def test_a_step_lost_with_the_memory_of_a_finished_job_is_named(site, caplog, to_storage):
    job = Job(site)
    job.checkpoint.save_checkpoint(7, to_storage=to_storage)
    job.checkpoint.wait("drained" if to_storage else "committed")
    job.checkpoint.close()
    assert ("step 7 is lost with the memory" in caplog.text) is not to_storage


@pytest.mark.parametrize("saved", [None, "memory", "storage"])
def test_the_last_step_is_in_storage_however_it_was_saved_before(site, caplog, saved):
    job = Job(site)
    job.checkpoint.save_checkpoint(6)
    job.step()
    weight = job.model.weight.detach().clone()
    if saved:
        job.checkpoint.save_checkpoint(7, to_storage=saved == "storage")
    job.checkpoint.save_last(7)
    assert job.checkpoint.stats().published_step == 7
    job.checkpoint.close()
    assert "is lost with the memory" not in caplog.text
    with tierckpt.open_published(site.config) as published:
        assert published.version.step == 7
        assert torch.equal(published.read(next(key for key in published.keys if key.endswith("weight"))), weight)


def test_a_last_step_of_a_new_line_has_nothing_of_the_step_saved_before_the_load(site):
    job = Job(site)
    job.step()
    job.checkpoint.save_checkpoint(3, to_storage=True)
    job.checkpoint.wait("drained")
    job.step()
    job.checkpoint.save_checkpoint(5)
    job.checkpoint.wait("committed")
    assert job.checkpoint.load_checkpoint(step=3) == 3
    for _ in range(4):
        job.step()
    job.checkpoint.save_last(5)
    job.checkpoint.close()
    successor = Job(site)
    assert successor.checkpoint.load_checkpoint() == 5
    assert {float(of["step"]) for of in successor.optimizer.state.values()} == {5.0}
    successor.checkpoint.close()


def test_a_last_step_that_is_older_than_the_last_saved_is_refused(job):
    job.checkpoint.save_checkpoint(7)
    job.checkpoint.wait("committed")
    with pytest.raises(tierckpt.InvalidArgumentError, match="step 7 was saved after it"):
        job.checkpoint.save_last(6)


def test_nothing_goes_if_memory_is_kept_for_a_successor(site, caplog):
    job = Job(site)
    job.checkpoint.save_checkpoint(7)
    job.checkpoint.wait("committed")
    job.checkpoint.close(job_done=False)
    assert "is lost with the memory" not in caplog.text


def test_file_and_overrides_are_the_configuration(site):
    import json

    path = site.dir / "tierckpt.json"
    path.write_text(json.dumps(site.config))
    model = nn.Linear(1, 1)
    tierckpt.init(model=model, config=path, overrides={"save_mem_interval": 5}).close()


def test_unknown_key_of_the_configuration_is_named(site):
    site.config["save_mem_intervall"] = 3
    with pytest.raises(tierckpt.ConfigError, match="save_mem_intervall"):
        Job(site)


def test_wait_before_any_save(job):
    with pytest.raises(tierckpt.NotFoundError, match="nothing has been saved"):
        job.checkpoint.wait("copied")


def test_wait_for_an_unknown_stage(job):
    with pytest.raises(tierckpt.InvalidArgumentError, match="'done' is none of copied, protected, committed, drained"):
        job.checkpoint.wait("done")


def test_save_of_step_zero_is_refused(job):
    with pytest.raises(tierckpt.InvalidArgumentError, match="step 0"):
        job.checkpoint.save_checkpoint(0)


def test_use_after_close(job):
    job.checkpoint.close()
    job.checkpoint.close()
    with pytest.raises(tierckpt.InvalidArgumentError, match="closed"):
        job.checkpoint.save_checkpoint(1)


def test_optimizer_can_step_after_close(job):
    job.checkpoint.close()
    job.step()


def test_unknown_capacity_is_refused(site):
    with pytest.raises(tierckpt.InvalidArgumentError, match="'extra'"):
        Job(site, capacity={"extra": 1})


@pytest.mark.parametrize("to_storage", [False, True])
def test_state_of_another_shape_is_refused_and_nothing_changed(site, to_storage):
    first = Job(site)
    first.checkpoint.save_checkpoint(1, to_storage=to_storage)
    first.checkpoint.wait("drained" if to_storage else "committed")
    first.checkpoint.close(job_done=False)
    model = nn.Linear(5, 2)
    before = model.weight.detach().clone()
    with tierckpt.init(model=model, config=site.config) as checkpoint:
        with pytest.raises((tierckpt.LayoutError, tierckpt.UnrecoverableError)):
            checkpoint.load_checkpoint()
    assert torch.equal(model.weight, before)


def test_unknown_step_is_not_taken_for_a_fresh_start(job):
    job.checkpoint.save_checkpoint(1)
    job.checkpoint.wait("committed")
    with pytest.raises(tierckpt.UnrecoverableError):
        job.checkpoint.load_checkpoint(step=7)


def test_it_is_known_before_a_save_whether_it_goes_to_storage(site):
    site.config["save_storage_interval"] = 4
    job = Job(site)
    assert [step for step in range(1, 10) if job.checkpoint.storage_due(step)] == [4, 8]
    job.checkpoint.close()
