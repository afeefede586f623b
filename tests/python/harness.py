# SPDX-License-Identifier: Apache-2.0
"""Runs functions of test modules in processes of their own, as the ranks of a job.

    results = run(tmp_path, "test_x:worker", world=2, steps=5)

Each rank calls worker(rank, world, steps=5) after init_process_group("gloo"); what it returns (JSON) is in the list.
One process imports torch, which takes seconds, and forks the ranks.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

TIMEOUT_S = 300
TESTS = Path(__file__).resolve().parents[1]


def _test_folders():
    """Where test modules are found: as the caller finds them."""
    return [path for path in map(Path, sys.path) if path.is_relative_to(TESTS)]


class Job:
    """The processes of one start of a job. Use it in a with-statement: none is left behind."""

    def __init__(self, tmp_path, target, world=1, **arguments):
        self._out = Path(tempfile.mkdtemp(dir=tmp_path, prefix="job-"))
        self._world = world
        command = [sys.executable, __file__, target, str(world), json.dumps(arguments), str(self._out)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
                       "PYTHONPATH": os.pathsep.join(map(str, _test_folders()))}
        with open(self._out / "log", "wb") as log:
            self._process = subprocess.Popen(command, env=environment, cwd=self._out, stdout=log, stderr=log,
                                             start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()

    def _codes(self):
        try:
            self._process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {TIMEOUT_S} s\n{self.log()}") from None
        codes = self._out / "codes"
        assert codes.exists(), self.log()
        return json.loads(codes.read_text())

    def log(self):
        return (self._out / "log").read_text(errors="replace")[-8000:]

    def results(self):
        """What the ranks returned."""
        codes = self._codes()
        assert codes == [0] * self._world, f"exit codes {codes}\n{self.log()}"
        return [json.loads((self._out / f"result.{rank}").read_text()) for rank in range(self._world)]

    def killed(self):
        """Waits for ranks that end themselves by die()."""
        codes = self._codes()
        assert codes == [-signal.SIGKILL] * self._world, f"exit codes {codes}\n{self.log()}"


def run(tmp_path, target, **arguments):
    with Job(tmp_path, target, **arguments) as job:
        return job.results()


def die():
    """Ends this rank as a crash does."""
    os.kill(os.getpid(), signal.SIGKILL)


def _run_rank(target, rank, world, arguments, out):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{out}/store", rank=rank, world_size=world)
    module, function = target.split(":")
    result = getattr(__import__(module), function)(rank, world, **arguments)
    Path(out, f"result.{rank}").write_text(json.dumps(result))
    if world > 1:
        dist.barrier()
        dist.destroy_process_group()


def _fork_rank(*arguments):
    pid = os.fork()
    if pid != 0:
        return pid
    code = 1
    try:
        _run_rank(*arguments)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _main():
    target, world, arguments, out = sys.argv[1:]
    import place  # noqa: F401 - sets the paths

    __import__(target.split(":")[0])  # with what is slow to import
    pids = [_fork_rank(target, rank, int(world), json.loads(arguments), out) for rank in range(int(world))]
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    Path(out, "codes").write_text(json.dumps(codes))


if __name__ == "__main__":
    _main()
