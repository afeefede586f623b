# SPDX-License-Identifier: Apache-2.0
"""Where the tests find the package, and the place with agents of its own that a test gets.

The installed package is tested, if there is one; else, or with $TCK_BUILD, this source tree with the library and the
programs of that build directory (default: build).
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
os.environ["PATH"] = os.pathsep.join([str(COMMANDS), os.environ["PATH"]])  # where the command `tierckpt` is
os.environ.setdefault("OMP_NUM_THREADS", "1")


class Site:
    """Directories and configuration of one job, and whatever agents its ranks start."""

    def __init__(self):
        self.dir = Path(tempfile.mkdtemp(prefix="tck-"))  # a short path: sockets lie below it
        self.config = {
            "job": "test", "runtime_dir": str(self.dir / "run"), "save_dir": str(self.dir / "save"),
            "net_address": "127.0.0.1", "net_device": "lo", "copies": 1, "linger_s": 90, "restore_wait_ms": 300,
            "save_mem_interval": 1, "save_storage_interval": "off", "memory_cap_bytes": "256MiB", "log_level": 3,
        }

    def _pids(self, node=""):
        """Supervisors and agents: processes that have a path below our directory in their command line."""
        path = str(self.dir / "run" / self.config["job"] / node).encode()
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and path in (entry / "cmdline").read_bytes():
                    yield int(entry.name)
            except OSError:
                continue  # it has ended

    def agents_left(self, within_s):
        """The agents that have not exited by themselves after that time."""
        deadline = time.monotonic() + within_s
        while (pids := list(self._pids())) and time.monotonic() < deadline:
            time.sleep(0.05)
        return pids

    def kill_agents(self, node=""):
        """Kills agents and supervisors, so that the node's memory is lost; by default those of all nodes."""
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
        """The ends of the agents' logs, for a test that has failed."""
        return "".join(f"--- {path}\n{path.read_text(errors='replace')[-6000:]}"
                       for path in sorted((self.dir / "run").glob("**/agent.log")))
