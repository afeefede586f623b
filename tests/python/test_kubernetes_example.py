# SPDX-License-Identifier: Apache-2.0
"""The program of the examples for Kubernetes trains, and continues where it was."""

import json
import os
import re
import subprocess
import sys


def train(top, config, steps):
    """Runs the program as torchrun does with one rank; returns after which step it began."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "GLOO_SOCKET_IFNAME": "lo",
                   "STEPS": str(steps), "TIERCKPT_CONFIG": str(config), "RANK": "0", "LOCAL_RANK": "0",
                   "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    program = top / "deploy/kubernetes/examples/train.py"
    done = subprocess.run([sys.executable, str(program)], env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, timeout=300)
    assert done.returncode == 0, done.stdout
    return re.findall(r"rank 0 begins after step (\d+)", done.stdout)


def test_the_program_continues(site, tmp_path, top):
    config = tmp_path / "config.json"
    config.write_text(json.dumps(site.config))
    assert train(top, config, 12) == ["0"]
    assert train(top, config, 20) == ["12"]
