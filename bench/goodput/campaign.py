# SPDX-License-Identifier: Apache-2.0
"""GOODPUT: the same training of two nodes, under the same random faults, with each way to save it: the share of the time
that made steps which were kept, the steps that were lost, and the time from a fault to the next new step.

A fault kills the processes of one trainer, or all of one node: there, ours loses the agent and its memory, too. As
launchers do, SIGTERM is sent to the other trainers (which have 30 s then, as torchrun gives them), and everything is
started again after a moment. What is lost is work since the last save that is whole; what a restart costs by itself
(Python, torch) is the same for every way and is in the figures."""

import argparse
import contextlib
import importlib.util
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "peers"))
import agent

WAYS = ["torch.save", "dcp.async", "lm-resiliency", "tierckpt"]
NEEDS = {"lm-resiliency": "lm_resiliency"}  # which is in a package of its own
WORLD = 2
PROGRAMS = [pathlib.Path("runtime") / p for p in ("agent/tierckptd", "agent/tierckpt-supervisor", "cli/tierckpt")]
RESTART_SECONDS = 0.5
NOTICED_SECONDS = 0.1  # after a trainer is gone, as by torchrun: then the others get SIGTERM
END_SECONDS = 30.0  # from SIGTERM to SIGKILL
FAULT_FIRST_SECONDS = 4.0  # after a start: three saves at the first interval, which the interval follows from
SKIPPED = 77


def faults(seed, seconds, mtbf):
    """(second of training since the last start, node, whole node?), the same for every way."""
    draw = random.Random(seed)
    while True:
        yield max(FAULT_FIRST_SECONDS, draw.expovariate(1 / mtbf)), draw.randrange(WORLD), draw.random() < 0.5


class Job:
    """One training with one way, in a directory of its own."""

    def __init__(self, way, args, directory):
        self.way, self.args, self.directory = way, args, pathlib.Path(directory)
        (self.directory / "save").mkdir()
        (self.directory / "bin").mkdir()
        for program in PROGRAMS:
            (self.directory / "bin" / program.name).symlink_to(agent.BUILD / program)
        self.launch, self.trainers, self.interval = 0, [], None

    def runtime_dir(self, node):
        return self.directory / f"run{node}"

    def start(self):
        self.launch += 1
        self.trainers = [self._start_rank(rank) for rank in range(WORLD)]

    def _start_rank(self, rank):
        out = open(self.directory / f"out.{self.launch}.{rank}", "w+", encoding="utf-8")
        command = [sys.executable, HERE / "train.py", self.way, "--rank", str(rank), "--world", str(WORLD),
                   "--store", self.directory / f"store.{self.launch}", "--dir", self.directory / "save",
                   "--state-bytes", str(self.args.state_mib << 20), "--step-seconds", str(self.args.step_seconds),
                   "--mtbf", str(self.args.mtbf), *(["--interval", str(self.interval)] if self.interval else [])]
        env = dict(agent.environment(), OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo", PYTHONWARNINGS="ignore",
                   GOODPUT_RUNTIME_DIR=str(self.runtime_dir(rank)), TIERCKPT_BIN_DIR=str(self.directory / "bin"))
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=env, start_new_session=True)
        return process, out

    def read(self):
        """What rank 0 has said in this launch: the step restored (None: not yet), and the newest step with its time."""
        text = (self.directory / f"out.{self.launch}.0").read_text(encoding="utf-8")
        said = [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n") and line[0] == "{"]
        restored = next((line for line in said if "restored" in line), None)
        steps = [line for line in said if "step" in line]
        return restored, steps

    def alive(self):
        return all(process.poll() is None for process, _ in self.trainers)

    def kill(self, node, whole):
        """The fault, and then the others, as their launcher would."""
        if whole:
            self._kill_agents(node)
            shutil.rmtree(self.runtime_dir(node), ignore_errors=True)
        self.trainers[node][0].kill()
        self.trainers[node][0].wait()
        time.sleep(NOTICED_SECONDS)
        self._end_trainers()

    def _end_trainers(self):
        for process, _ in self.trainers:
            process.terminate()
        until = time.monotonic() + END_SECONDS
        for process, out in self.trainers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            process.kill()
            process.wait()
            out.close()

    def _kill_agents(self, node):
        """Stopped first, or the supervisor starts the agent again."""
        pids = list(agent.processes(str(self.runtime_dir(node))))
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)

    def end(self):
        for process, out in self.trainers:
            process.kill()
            process.wait()
            out.close()
        for node in range(WORLD):
            self._kill_agents(node)


def wait_for(job, done, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = done()
        if value:
            return value
        if not job.alive():
            break
        time.sleep(0.02)
    output = "\n".join((job.directory / f"out.{job.launch}.{r}").read_text(encoding="utf-8")[-1500:] for r in range(WORLD))
    raise SystemExit(f"{job.way}: the training does not go on:\n{output}")


def campaign(way, args):
    """One way under all faults."""
    with tempfile.TemporaryDirectory(prefix="goodput.", dir=args.dir, ignore_cleanup_errors=True) as directory:
        job = Job(way, args, os.path.abspath(directory))
        try:
            return _disturb(job, args)
        finally:
            job.end()


def _disturb(job, args):
    """The clock runs from the first step of the first launch, so that every way begins alike."""
    lost, recoveries, count = 0, [], 0
    job.start()
    begin = wait_for(job, lambda: job.read()[1], 120)[0]["at"]
    end = begin + args.seconds
    newest, fault_at = 0, None
    for after, node, whole in faults(args.seed, args.seconds, args.mtbf):
        steps = job.read()[1]
        until = min(steps[0]["at"] + after, end)
        while time.monotonic() < until:
            if not job.alive():
                wait_for(job, lambda: None, 0)
            time.sleep(0.02)
        steps = job.read()[1]
        newest, job.interval = steps[-1]["step"], steps[-1]["interval"] if steps[-1]["measured"] else None
        if until >= end:
            break
        fault_at = time.monotonic()
        job.kill(node, whole)
        count += 1
        newest = job.read()[1][-1]["step"]
        time.sleep(RESTART_SECONDS)
        job.start()
        restored, steps = wait_for(job, lambda: (lambda r: r if r[0] and r[1] else None)(job.read()), 120)
        lost += newest - restored["restored"]
        new = wait_for(job, lambda: [s for s in job.read()[1] if s["step"] > newest], 300)
        recoveries.append(new[0]["at"] - fault_at)
    return {"way": job.way, "goodput": newest * args.step_seconds / args.seconds, "lost": lost, "faults": count, "interval": job.interval,
            "recovery": sum(recoveries) / len(recoveries) if recoveries else 0.0}


def row(way, r, reference):
    what = (f"{r['faults']} faults, {r['lost']} steps lost, {r['recovery']:.2f} s from a fault to the next new step, "
            f"saved every {r['interval']} steps")
    return {"id": f"GOODPUT.{way}", "what": what, "value": r["goodput"], "unit": "of the time", "better": "more",
            "spread": 0, "reference": reference["way"], "reference_value": reference["goodput"], "reference_unit": "of the time",
            **r}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", default=".")
    parser.add_argument("--rounds", type=int, default=1, help=argparse.SUPPRESS)
    parser.add_argument("id", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=1, help="of the faults")
    parser.add_argument("--seconds", type=float, default=120, help="of each way")
    parser.add_argument("--mtbf", type=float, default=15, help="mean seconds between faults")
    parser.add_argument("--step-seconds", type=float, default=0.05)
    parser.add_argument("--state-mib", type=int, default=64, help="of each rank")
    parser.add_argument("--only", action="append", choices=WAYS, help="compared with the first one given")
    args = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print(json.dumps({"id": "GOODPUT", "skipped": "torch is not installed: run deploy/try once"}))
        return SKIPPED
    reference = None
    for way in args.only or WAYS:
        if way in NEEDS and importlib.util.find_spec(NEEDS[way]) is None:
            print(json.dumps({"id": f"GOODPUT.{way}", "skipped": "it could not be installed here"}), flush=True)
            continue
        result = campaign(way, args)
        reference = reference or result
        print(json.dumps(row(way, result, reference)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
