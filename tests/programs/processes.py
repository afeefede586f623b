# SPDX-License-Identifier: Apache-2.0
"""The processes of one start of a program, found by a mark in their environment."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

_MARK = "TCK_PROGRAM_START"
_OURS = (b"tierckptd", b"tierckpt-supervisor")


def _read(pid: str, what: str) -> bytes:
    try:
        return Path("/proc", pid, what).read_bytes()
    except OSError:
        return b""  # it has ended


def _all() -> list[str]:
    return [entry for entry in os.listdir("/proc") if entry.isdigit()]


def agents(runtime_dir: Path, victim: str) -> list[int]:
    """The pids of a job's agents; victim: "agent", "supervisor", or both."""
    found = []
    for pid in _all():
        command = _read(pid, "cmdline")
        if str(runtime_dir).encode() not in command:
            continue
        program = os.path.basename(command.split(b"\0")[0])
        if program == b"tierckptd" and "agent" in victim or \
                program == b"tierckpt-supervisor" and "supervisor" in victim:
            found.append(int(pid))
    return found


def kill(pids):
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Start:
    """Use it in a with-statement: only agents and supervisors are left running."""

    def __init__(self, command: str, script: Path, directory: Path, number: int, paths):
        self.log = directory / f"run.{number}.log"
        self._token = f"{os.getpid()}.{directory.name}.{number}"
        words = [word.format(script=script, python=sys.executable) for word in shlex.split(command)]
        if words[0] == "python":
            words[0] = sys.executable
        elif words[0] == "torchrun":
            words[:1] = [sys.executable, "-m", "torch.distributed.run"]
        before = os.environ.get("PYTHONPATH")
        path = os.pathsep.join([*map(str, paths), *([before] if before else [])])
        environment = {**os.environ, _MARK: self._token, "PYTHONPATH": path, "OMP_NUM_THREADS": "1",
                       "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "GLOO_SOCKET_IFNAME": "lo",
                       "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
                       "HF_HOME": str(directory / "hf"), "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
        self._launched = words[1:3] == ["-m", "torch.distributed.run"]
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(words, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                                             stdout=log, stderr=log, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        for _ in range(20):
            left = self._pids()
            kill(left)
            if not left:
                break
            time.sleep(0.05)
        self._process.wait()

    def _pids(self) -> list[int]:
        mark = f"{_MARK}={self._token}\0".encode()
        return [int(pid) for pid in _all() if mark in _read(pid, "environ")
                and os.path.basename(_read(pid, "cmdline").split(b"\0")[0]) not in _OURS]

    @property
    def code(self) -> int | None:
        """Its exit status, None while it runs."""
        return self._process.poll()

    def wait(self, timeout_s: float) -> int | None:
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def victims(self, kind: str) -> list[int]:
        """Trainers are the processes that have loaded the client library; if there are none yet, any process but the
        launcher."""
        pids = self._pids()
        if kind == "all":
            return pids
        if kind == "launcher":
            return [self._process.pid] if self._process.pid in pids else []
        trainers = [pid for pid in pids if b"libtierckpt" in _read(str(pid), "maps")]
        return sorted(trainers or [pid for pid in pids if not self._launched or pid != self._process.pid])

    def text(self) -> str:
        return self.log.read_text(errors="replace")
