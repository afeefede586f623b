# SPDX-License-Identifier: Apache-2.0
"""The end of a training process: nothing torn is saved, nothing hangs, and a forked child is not a trainer."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import tierckpt

ENDS = {"exception": 1, "sys.exit": 3, "ctrl-c": -signal.SIGINT, "end of the program": 0, "garbage": 0, "closed": 0}
KILLS = {"sigterm": -signal.SIGTERM, "os._exit": 4}


def make(site, **arguments):
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, optimizer, tierckpt.init(model=model, optimizer=optimizer, config=site.config, **arguments)


def ended(site, way):
    """Returns the exit code of a training that ends in this way, and what its successor loads: step and values of the
    weights."""
    site.config["block_time_ms"] = 20000
    done = subprocess.run([sys.executable, str(Path(__file__).with_name("exits.py")), way], timeout=120, check=False,
                          input=json.dumps(site.config), text=True, capture_output=True)
    model, _, checkpoint = make(site)
    step = checkpoint.load_checkpoint()
    checkpoint.close()
    values = {value for parameter in model.parameters() for value in parameter.unique().tolist()}
    return done.returncode, step, values, done.stderr


@pytest.mark.parametrize("way", ENDS)
def test_a_snapshot_under_way_when_the_program_ends_is_whole(site, way):
    code, step, values, said = ended(site, way)
    assert (code, step, values) == (ENDS[way], 2, {2.0}), said


@pytest.mark.parametrize("way", KILLS)
def test_a_snapshot_under_way_when_the_process_is_killed_is_not_there(site, way):
    code, step, values, said = ended(site, way)
    assert (code, step, values) == (KILLS[way], 1, {1.0}), said


def in_child(act):
    """Returns the exit code of a forked child that calls act and then exits as a program does."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            signal.alarm(30)
            act()
            code = 0
        finally:
            import atexit
            import gc

            gc.collect()
            atexit._run_exitfuncs()
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_neither_ends_nor_uses_the_checkpoint(site):
    model, optimizer, checkpoint = make(site)
    checkpoint.save_checkpoint(1)

    def child():
        optimizer.step()  # calls the fence
        with pytest.raises(tierckpt.InvalidArgumentError, match=f"belongs to process {os.getppid()}"):
            checkpoint.save_checkpoint(2)
        checkpoint.close()

    assert in_child(child) == 0
    assert in_child(lambda: None) == 0
    checkpoint.wait("committed")
    assert checkpoint.save_checkpoint(2)
    checkpoint.wait("committed")
    checkpoint.close()


def test_an_interrupt_during_close_leaves_what_can_be_closed(site, monkeypatch):
    _, _, checkpoint = make(site)
    checkpoint.save_checkpoint(1)
    thread = checkpoint._client.watch._thread

    def interrupted():
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(checkpoint._client, "fence", interrupted)
        checkpoint.close()
    checkpoint.close()
    assert not thread.is_alive()


def spawned(queue):
    queue.put(tierckpt.__version__)


def test_children_made_by_spawn_do_no_harm(site):
    _, _, checkpoint = make(site)
    assert checkpoint.save_checkpoint(1)
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    child = context.Process(target=spawned, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == tierckpt.__version__
    child.join()
    checkpoint.wait("committed")
    checkpoint.close()


def test_a_second_init_closes_the_first_and_goes_on_from_what_it_saved(site, caplog):
    model, optimizer, first = make(site)
    first.save_checkpoint(5)
    first.wait("committed")
    _, _, second = make(site)
    assert "opened before for the same job is closed" in caplog.text
    assert second.load_checkpoint() == 5
    optimizer.step()  # the optimizer of the first, whose fence was removed
    with pytest.raises(tierckpt.InvalidArgumentError, match="closed"):
        first.save_checkpoint_if_needed(6)
    assert second.save_checkpoint(6)
    second.wait("committed")
    first.close()
    second.close()


def test_an_init_of_another_job_leaves_the_first_alone(site):
    _, _, first = make(site)
    _, _, second = make(site, overrides={"job": "test2"})
    for step, checkpoint in ((1, first), (2, second), (3, first)):
        assert checkpoint.save_checkpoint(step)
        checkpoint.wait("committed")
    first.close()
    second.close()
    site.config["job"] = "test2"
    site.kill_agents()
