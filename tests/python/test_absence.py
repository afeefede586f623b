# SPDX-License-Identifier: Apache-2.0
"""A damaged published version never leads to a fresh start, and an older one is never restored without a warning."""

import os
import signal
from pathlib import Path

import pytest
import torch

import tierckpt
from harness import run


def train(rank, world, config, steps):
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=config)
    for step in range(1, steps + 1):
        model(torch.randn(2, 16)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        checkpoint.save_checkpoint(step, to_storage=True)
        checkpoint.wait("drained")
    checkpoint.close()


def load(rank, world, config):
    """Returns the step and what was passed over, or the error's kind and text."""
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=config)
    try:
        step = checkpoint.load_checkpoint()
        return [step, checkpoint.restored.passed_over if step else ""]
    except tierckpt.Error as error:
        return [type(error).__name__, str(error)]
    finally:
        checkpoint.close(job_done=False)


def versions_of(site):
    return sorted(path.parent for path in (site.dir / "save").glob("*/v*/manifest.json"))


def cut_short(version):
    shard = next(version.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1])


@pytest.fixture(name="published")
def _published(tmp_path, site):
    """Publishes steps 1 and 2, and leaves no agent that has them in memory."""
    run(tmp_path, "test_absence:train", config=site.config, steps=2)
    site.kill_agents()
    return versions_of(site)


def test_an_older_version_in_place_of_a_damaged_one_is_reported(tmp_path, site, published):
    cut_short(published[1])
    [[step, passed_over]] = run(tmp_path, "test_absence:load", config=site.config)
    assert step == 1
    assert "version 1.2 is damaged on storage" in passed_over and "shard-" in passed_over


def test_all_versions_being_damaged_is_no_fresh_start(tmp_path, site, published):
    for version in published:
        cut_short(version)
    [[kind, text]] = run(tmp_path, "test_absence:load", config=site.config)
    assert kind == "UnrecoverableError"
    assert "is damaged on storage" in text and "tierckpt forget" in text


def test_a_fresh_start_can_be_accepted(tmp_path, site, published):
    for version in published:
        cut_short(version)
    config = {**site.config, "accept_fresh_start": "on"}
    assert run(tmp_path, "test_absence:load", config=config) == [[None, ""]]


def agent_of(config):
    """Returns the pid of the only agent, not that of its supervisor."""
    place = str(Path(config["runtime_dir"], config["job"])).encode()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if place in (entry / "cmdline").read_bytes() and (entry / "comm").read_text() == "tierckptd\n":
                return int(entry.name)
        except OSError:
            continue  # it has ended
    raise AssertionError("no agent runs")


def load_twice(rank, world, config):
    """Loads again after the agent was killed and restarted by its supervisor."""
    checkpoint = tierckpt.init(model=torch.nn.Linear(16, 16), config=config)
    first = checkpoint.load_checkpoint()
    os.kill(agent_of(config), signal.SIGKILL)
    steps = [first, checkpoint.load_checkpoint()]
    checkpoint.close(job_done=False)
    return steps


def test_nothing_saved_is_found_out_again_after_the_agent_was_restarted(tmp_path, site):
    assert run(tmp_path, "test_absence:load_twice", config=site.config) == [[None, None]]
    log = site.logs()
    assert log.count("nothing to restore: nothing was saved yet") == 2, "a restarted agent has not searched again"


def config_without_job(config, save_dir):
    return {**{key: value for key, value in config.items() if key != "job"}, "save_dir": str(save_dir)}


@pytest.fixture(name="moved")
def _moved(tmp_path, site):
    """Returns the configuration of an unnamed job whose directory was moved after two steps, and its former name."""
    before, after = site.dir / "before", site.dir / "after"
    run(tmp_path, "test_absence:train", config=config_without_job(site.config, before), steps=2)
    site.config["job"] = ""
    site.kill_agents()
    before.rename(after)
    [job] = after.iterdir()
    return config_without_job(site.config, after), job.name


def test_a_moved_directory_is_no_fresh_start(tmp_path, moved):
    config, job = moved
    [[kind, text]] = run(tmp_path, "test_absence:load", config=config)
    assert kind == "UnrecoverableError"
    assert f"has versions of job {job}" in text and f'set job to "{job}"' in text


def test_a_moved_directory_is_restored_under_the_former_name(tmp_path, moved):
    config, job = moved
    assert run(tmp_path, "test_absence:load", config={**config, "job": job}) == [[2, ""]]


def test_a_fresh_start_beside_a_moved_job_can_be_accepted(tmp_path, moved):
    config, _ = moved
    assert run(tmp_path, "test_absence:load", config={**config, "accept_fresh_start": "on"}) == [[None, ""]]
