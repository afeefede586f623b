# SPDX-License-Identifier: Apache-2.0
"""Locates the package for the tests, and gives each test a place with agents of its own.

The installed package is tested, if there is one; otherwise, or with $TCK_BUILD, this source tree with the library and
the programs of that build directory (default: build).
"""

import importlib.util
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
INSTALLED = "TCK_BUILD" not in os.environ and importlib.util.find_spec("tierckpt") is not None

if not INSTALLED:
    build = Path(os.environ.setdefault("TCK_BUILD", str(TOP / "build")))
    sys.path.insert(0, str(TOP / "python"))
    os.environ.setdefault("TIERCKPT_LIBRARY", str(build / "runtime/client/libtierckpt.so"))
    os.environ.setdefault("TIERCKPT_BIN_DIR", str(build / "runtime/agent"))
    COMMANDS = build / "runtime/cli"
else:
    COMMANDS = Path(sys.executable).parent
if importlib.util.find_spec("aimaster") is None:  # packages of other import names: else the installed ones are tested
    sys.path.append(str(TOP / "python/easyckpt"))
if importlib.util.find_spec("amzn_sagemaker_checkpointing") is None:
    sys.path.append(str(TOP / "python/hyperpod"))
os.environ["PATH"] = os.pathsep.join([str(COMMANDS), os.environ["PATH"]])  # the directory of the command `tierckpt`
os.environ.setdefault("OMP_NUM_THREADS", "1")


class Site:
    """Directories and configuration of one job, and the agents that its ranks start."""

    def __init__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="tck-"))  # a short path, because sockets are created below it
        self.config = {
            "job": "test", "runtime_dir": str(self.dir / "run"), "save_dir": str(self.dir / "save"),
            "net_address": "127.0.0.1", "net_device": "lo", "copies": 1, "linger_s": 90, "restore_wait_ms": 300,
            "save_mem_interval": 1, "save_storage_interval": "off", "memory_cap_bytes": "256MiB", "log_level": 3,
        }

    def _pids(self, node=""):
        """Supervisors and agents: processes whose command line has a path below our directory."""
        path = str(self.dir / "run" / self.config["job"] / node).encode()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and path in (entry / "cmdline").read_bytes():
                    yield int(entry.name)
            except OSError:
                continue  # it has ended

    def agents_left(self, within_s):
        """Returns the agents that have not exited by themselves after this time."""
        deadline = time.monotonic() + within_s
        while (pids := list(self._pids())) and time.monotonic() < deadline:
            time.sleep(0.05)
        return pids

    def kill_agents(self, node=""):
        """Kills agents and supervisors, so that the node's memory is lost; by default on all nodes."""
        for _ in range(20):
            for pid in list(self._pids(node)):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not list(self._pids(node)):
                return
            time.sleep(0.05)

    def logs(self):
        """Returns the last lines of the agents' logs, for a failed test."""
        return "".join(f"--- {path}\n{path.read_text(errors='replace')[-6000:]}"
                       for path in sorted((self.dir / "run").glob("**/agent.log")))
