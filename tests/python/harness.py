# SPDX-License-Identifier: Apache-2.0
"""Runs functions of test modules in separate processes, as the ranks of a job.

    results = run(tmp_path, "test_x:worker", world=2, steps=5)

Each rank calls worker(rank, world, steps=5) after init_process_group("gloo"); the list has the returned values (JSON).
One process imports torch, which takes seconds, and forks the ranks. If that is too slow for each job, a Nursery imports
once and forks all jobs of a test module: run(tmp_path, target, nursery=nursery, ...). With share_imports(), all jobs of
the program that name no nursery come from one that has imported what most trainings import.
"""

import atexit
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

TIMEOUT_S = 300
JOIN_ATTEMPTS = 3
TESTS = Path(__file__).resolve().parents[1]


def _test_folders():
    """The folders with test modules, from the caller's sys.path."""
    return [path for path in map(Path, sys.path) if path.is_relative_to(TESTS)]


def _environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo",
            "PYTHONPATH": os.pathsep.join(map(str, _test_folders()))}


class Nursery:
    """A process that imports a test module and forks jobs of it. Use it in a with-statement."""

    def __init__(self, tmp_path, module):
        self._log = open(tmp_path / "nursery.log", "wb")
        self._process = subprocess.Popen([sys.executable, __file__, module], env=_environment(), cwd=tmp_path,
                                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log)

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._process.stdin.close()
        self._process.kill()
        self._process.wait()
        self._log.close()

    def start(self, arguments):
        """Returns the pid of the new job, which leads its process group."""
        self._process.stdin.write(json.dumps([_environment(), *arguments]).encode() + b"\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, Path(self._log.name).read_text(errors="replace")[-8000:]
        return int(answer)


_sharing = False


def share_imports():
    """Lets all jobs of this program that name no nursery be forked from one process that imports once."""
    global _sharing
    _sharing = True


@functools.cache
def _shared_nursery():
    directory = Path(tempfile.mkdtemp(prefix="tck-nursery-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    nursery = Nursery(directory, "usual_imports")
    atexit.register(nursery.__exit__)  # called before the directory is removed, since it was registered later
    return nursery


class Job:
    """The processes of one start of a job. Use it in a with-statement: it leaves none running."""

    def __init__(self, tmp_path, target, world=1, nursery=None, **arguments):
        self._out = Path(tempfile.mkdtemp(dir=tmp_path, prefix="job-"))
        self._world = world
        command = [target, str(world), json.dumps(arguments), str(self._out)]
        if nursery is None and _sharing:
            nursery = _shared_nursery()
        if nursery is not None:
            self._process = None
            self._pid = nursery.start(command)
            return
        with open(self._out / "log", "wb") as log:
            self._process = subprocess.Popen([sys.executable, __file__, *command], env=_environment(), cwd=self._out,
                                             stdout=log, stderr=log, start_new_session=True)
        self._pid = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        try:
            os.killpg(self._pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if self._process is not None:
            self._process.wait()

    def _wait(self):
        if self._process is not None:
            return self._process.wait(TIMEOUT_S)
        deadline = time.monotonic() + TIMEOUT_S
        while os.path.exists(f"/proc/{self._pid}"):
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired("job", TIMEOUT_S)
            time.sleep(0.02)

    def _codes(self):
        try:
            self._wait()
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running after {TIMEOUT_S} s\n{self.log()}") from None
        codes = self._out / "codes"
        assert codes.exists(), self.log()
        return json.loads(codes.read_text())

    def log(self, characters=8000):
        return (self._out / "log").read_text(errors="replace")[-characters:]

    def results(self):
        """Returns the results of the ranks."""
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
    """Ends this rank like a crash."""
    os.kill(os.getpid(), signal.SIGKILL)


def _joined(out, rank):
    return Path(out, f"joined.{rank}")


def _run_rank(target, rank, world, arguments, out, attempt):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("gloo", init_method=f"file://{out}/joining.{attempt}", rank=rank, world_size=world)
        dist.barrier()  # nothing of the test runs before all have joined
        _joined(out, rank).touch()
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


def _wait_for_ranks(pids, out):
    """Their exit codes; None, with all of them ended, if one failed before it had joined the others."""
    codes = {}
    while len(codes) < len(pids):
        pid, status = os.wait()
        if pid not in pids:
            continue
        rank, code = pids.index(pid), os.waitstatus_to_exitcode(status)
        codes[rank] = code
        if code != 0 and len(pids) > 1 and not _joined(out, rank).exists():
            for other in set(range(len(pids))) - set(codes):
                os.kill(pids[other], signal.SIGKILL)
                os.waitpid(pids[other], 0)
            return None
    return [codes[rank] for rank in range(len(pids))]


def _run_job(target, world, arguments, out):
    """Gloo sometimes fails to connect processes that start at the same time, and then those it has connected wait."""
    codes = None
    for attempt in range(JOIN_ATTEMPTS):
        pids = [_fork_rank(target, rank, int(world), json.loads(arguments), out, attempt) for rank in range(int(world))]
        codes = _wait_for_ranks(pids, out)
        if codes is not None:
            break
    Path(out, "codes").write_text(json.dumps(codes or [1] * int(world)))


def _fork_job(environment, target, world, arguments, out):
    pid = os.fork()
    if pid != 0:
        return pid
    os.setsid()
    os.environ.clear()
    os.environ.update(environment)  # a test may have changed it since the nursery began
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.chdir(out)
    log = os.open(os.path.join(out, "log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    for source, descriptor in ((null, 0), (log, 1), (log, 2)):
        os.dup2(source, descriptor)
    try:
        __import__(target.split(":")[0])
        _run_job(target, world, arguments, out)
    except BaseException:
        traceback.print_exc()  # if the test module cannot be imported
    finally:
        sys.stderr.flush()
        os._exit(0)  # if the job failed, there are no "codes"


def _nurse(module):
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of the imported modules must not mix with the answers
    __import__(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the exit status of a job is not needed, so none remains as a zombie
    while line := sys.stdin.readline():  # read line by line: the children must not inherit buffered input
        print(_fork_job(*json.loads(line)), file=answers, flush=True)


def _main():
    import place  # noqa: F401 - sets the paths

    if len(sys.argv) == 2:
        return _nurse(sys.argv[1])
    target, *rest = sys.argv[1:]
    __import__(target.split(":")[0])  # including modules that are slow to import
    _run_job(target, *rest)


if __name__ == "__main__":
    _main()
