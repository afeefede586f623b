# SPDX-License-Identifier: Apache-2.0
"""The program on the page "plain PyTorch" runs unchanged, and a killed run ends like an uninterrupted one."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = 20


@pytest.fixture
def program(tmp_path, top):
    (code,) = re.findall(r"```python\n(.*?)```", (top / "docs/pytorch.md").read_text(), re.S)
    path = tmp_path / "train.py"
    path.write_text(code)
    return path


@pytest.fixture
def start(site, program, tmp_path):
    """Starts the program for a job of this name with this number of ranks."""
    site.config["save_mem_interval"] = 1

    def started(job, world):
        config = tmp_path / f"{job}.json"
        config.write_text(json.dumps({**site.config, "job": job}))
        launcher = [] if world == 1 else ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={world}"]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo",
                       "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        return subprocess.Popen([sys.executable, *launcher, str(program), str(config), str(STEPS)], env=environment,
                                stdout=subprocess.PIPE, stderr=(tmp_path / "log").open("ab"), text=True,
                                start_new_session=True)

    yield started
    for job in ("whole", "killed"):
        site.config["job"] = job
        site.kill_agents()


def kill_all(program):
    """Kills all processes; torchrun gives each rank a process group of its own."""
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and str(program).encode() in (entry / "cmdline").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except OSError:
            continue  # it has ended


def steps_of(lines):
    """Returns the losses of all ranks by step; the ranks' lines may run into each other."""
    steps = {}
    for step, loss in re.findall(r"step (\d+) loss (\d+\.\d+(?:e-?\d+)?)", "".join(lines)):
        steps.setdefault(int(step), []).append(loss)
    return {step: sorted(losses) for step, losses in steps.items()}


@pytest.mark.parametrize("world", [1, 2])
def test_the_program_of_the_page_ends_with_the_same_bits_when_it_was_killed(start, program, tmp_path, world):
    whole = steps_of(start("whole", world).stdout)
    assert sorted(whole) == list(range(1, STEPS + 1)), (tmp_path / "log").read_text()[-4000:]
    killed = start("killed", world)
    for line in killed.stdout:
        if "step 11 " in line:
            kill_all(program)
            break
    killed.communicate()
    resumed = start("killed", world)
    rest = steps_of(resumed.stdout)
    log = (tmp_path / "log").read_text()
    assert resumed.wait() == 0, log[-4000:]
    assert min(rest) > 1 and max(rest) == STEPS, log[-4000:]
    assert rest == {step: whole[step] for step in rest}
    assert "restored step" in log and "attached to job killed" in log
