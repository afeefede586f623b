# SPDX-License-Identifier: Apache-2.0
"""Which agent the measured program talks to: the one that its client starts, or where that was not built (a machine
with a GPU and little else) the tests' one, which gives memory, makes no digests and copies nothing to anyone."""

import contextlib
import os
import pathlib
import subprocess

TOP = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("TIERCKPT_BUILD_DIR", TOP / "build/release")).resolve()
JOB = NODE = "bench"
REAL = (BUILD / "runtime/agent/tierckptd").exists()
COMMITTED = "committed in the agent's memory, digests made" if REAL else "committed by the tests' agent, no digests made"


def environment() -> dict:
    """For a process that uses the package."""
    return dict(os.environ, PYTHONPATH=str(TOP / "python"), TIERCKPT_BUILD_DIR=str(BUILD),
                TIERCKPT_LIBRARY=str(BUILD / "runtime/client/libtierckpt.so"))


@contextlib.contextmanager
def running(directory):
    if REAL:
        yield
        return
    command = [BUILD / "bench/bench_gpu_agent", os.path.join(directory, "run"), JOB, NODE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        process.stdout.readline()
        try:
            yield
        finally:
            process.stdin.close()


def overrides(directory, rank=0, world=1) -> dict:
    """The configuration of a job that saves only on request. Each rank is a node, which another one protects."""
    number = rank or ""
    return {"job": JOB, "node": f"{NODE}{number}", "runtime_dir": os.path.join(directory, f"run{number}"),
            "save_dir": os.path.join(directory, "save"), "copies": min(world, 2), "linger_s": 5, "save_mem_interval": 0,
            "save_storage_interval": 0, "max_ckpt_num": 1, "net_device": "lo"}


def processes(directory):
    """Agents and supervisors whose command line names this directory: their runtime directory, or one above it."""
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and os.fsencode(directory) in (entry / "cmdline").read_bytes() and \
                    (entry / "comm").read_text().startswith("tierckpt"):
                yield int(entry.name)
