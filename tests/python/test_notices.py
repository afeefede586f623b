# SPDX-License-Identifier: Apache-2.0
"""The lines that the logger "tierckpt" writes about a training."""

import json
import logging
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import tierckpt
from fake_client import FakeClient
from tierckpt.runtime import native
from tierckpt.runtime.notices import Notices


@pytest.fixture(autouse=True)
def everything(caplog):
    native.log_lines(logging.getLogger("another logger"))  # discards lines of other tests' clients in this process
    caplog.clear()
    caplog.set_level(logging.INFO, "tierckpt")


def make(site, **arguments):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return tierckpt.init(model=model, optimizer=optimizer, config=site.config, **arguments)


def lines(caplog, level):
    return [record.getMessage() for record in caplog.records if record.levelname == level]


def test_attaching_and_restoring_are_logged(site, caplog):
    site.config["save_storage_interval"] = "10m"
    checkpoint = make(site)
    (attached,) = [line for line in lines(caplog, "INFO") if "attached" in line]
    assert attached == ("attached to job test, term 1, 1 rank on 1 node; saving every 1 step to memory, every 600 s to "
                        f"{site.config['save_dir']}")
    checkpoint.save_checkpoint(35)
    checkpoint.wait("committed")
    checkpoint.close(job_done=False)
    checkpoint = make(site)
    assert checkpoint.load_checkpoint() == 35
    (restored,) = [line for line in lines(caplog, "INFO") if "restored step" in line]
    assert restored.startswith("restored step 35 of term 1 from memory of node ") and restored.endswith(" s")
    checkpoint.close()
    assert not lines(caplog, "ERROR")


def test_a_counter_that_goes_back_is_an_error_once(site, caplog):
    checkpoint = make(site)
    assert checkpoint.save_checkpoint_if_needed(3)
    with pytest.raises(tierckpt.InvalidArgumentError):
        checkpoint.save_checkpoint(1)
    (error,) = lines(caplog, "ERROR")
    checkpoint.save_checkpoint_if_needed(2)
    assert lines(caplog, "ERROR") == [error]
    assert "step 1 comes after step 3" in error
    checkpoint.close()


def test_an_agent_that_is_gone_is_a_warning_once_and_its_return_another(site, caplog):
    checkpoint = make(site)
    assert checkpoint.save_checkpoint_if_needed(1)
    checkpoint.wait("committed")
    assert checkpoint.health().agent_connected
    site.kill_agents()
    step, results = 2, []
    while not (results and results[-1].skipped) and step < 1000:
        results.append(checkpoint.save_checkpoint_if_needed(step))
        checkpoint.fence()
        step += 1
        time.sleep(0.01)
    for _ in range(5):
        results.append(checkpoint.save_checkpoint_if_needed(step))
        step += 1
    assert results[-1].skipped
    assert not checkpoint.health().agent_connected
    skipped = [line for line in lines(caplog, "WARNING") if "saves are skipped" in line]
    assert skipped and len(skipped) == len(set(skipped))
    checkpoint.close(job_done=False)


FORKS_AND_ENDS = """
import json, logging, os, sys
import place  # noqa: F401
import torch
import tierckpt
logging.basicConfig(level=logging.INFO, format="%(process)d %(message)s", stream=sys.stderr)
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=json.loads(sys.stdin.read()))
checkpoint.save_checkpoint(1)
checkpoint.wait("committed")
child = os.fork()
if child == 0:
    sys.exit(0)  # through the end of the interpreter
ended = os.waitpid(child, 0)[1]
checkpoint.close()
print(os.getpid(), child)
sys.exit(ended)
"""


def test_lines_are_logged_up_to_the_end_and_by_no_forked_child(site):
    done = subprocess.run([sys.executable, "-c", FORKS_AND_ENDS], timeout=120, check=False, text=True,
                          input=json.dumps(site.config), capture_output=True, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    parent, child = done.stdout.split()
    said = [line.partition(" ") for line in done.stderr.splitlines()]
    assert [text for pid, _, text in said if pid == child] == []
    texts = [text for pid, _, text in said if pid == parent]
    assert len([text for text in texts if "attached to job test" in text]) == 1
    assert len([text for text in texts if "is lost with the memory of its nodes" in text]) == 1
    (log,) = (site.dir / "run/test").glob("*/agent.log")
    assert f"rank0[{parent}] attached to job test" in log.read_text()


def test_what_save_last_waits_for_is_told_while_somebody_can_still_help(site):
    class Helper(logging.Handler):
        def emit(self, record):
            if "save_last waits for it" in record.getMessage():
                away.rename(save_dir)

    checkpoint = make(site)
    save_dir = Path(site.config["save_dir"])
    away = save_dir.with_name("away")
    save_dir.rename(away)
    helper = Helper()
    logging.getLogger("tierckpt").addHandler(helper)
    try:
        checkpoint.save_last(1, timeout=60)
    finally:
        logging.getLogger("tierckpt").removeHandler(helper)
    checkpoint.close()


class Sick(FakeClient):
    is_open, rank = True, 0
    text = ""

    def health(self):
        good = not self.text
        return native.Health(True, False, good, None if good else 0.0, None if good else 8, None if good else 40,
                              0 if good else 5, 0, 0, False, "", self.text, "")


def test_storage_trouble_is_logged_once_per_cause_and_its_end(caplog):
    native.log_lines(logging.getLogger("somebody else"))  # discards lines of other tests
    client = Sick()
    notices = Notices(client)
    for text in ("", "/save: No space left on device", "/save: No space left on device", "/save: stale", ""):
        client.text = text
        notices.look()
    told = lines(caplog, "WARNING")
    assert len(told) == 3
    assert "steps 8 to 40, which only memory has): /save: No space left on device" in told[0]
    assert told[1].endswith("/save: stale") and told[2] == "storage works again"
