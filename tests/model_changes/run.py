#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trainings that change their model (trainee.py), killed at random moments and started again: run.py BUILD [--seed S]
[--count N] [--jobs J] [--verbose]

A launch must restore exactly the bits that some launch had at that step, and nothing older than the newest commit. Exit
status 0: success; 1: failure (the directory of that run is kept); 77: PyTorch is not installed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

from daemons import kill_all, programs, send  # noqa: E402
from seeded import Broken, Suite, arguments  # noqa: E402

BOUND_S = 120
LAYOUT, WRONG = 5, 6


class Zygote:
    def __init__(self, build, work):
        python_path = os.pathsep.join((str(HERE.parent.parent / "python"), os.environ.get("PYTHONPATH", "")))
        self.process = subprocess.Popen(
            (sys.executable, HERE / "zygote.py"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            stderr=open(work / "zygote.log", "w", encoding="utf-8"), cwd=work,
            env={**os.environ, "TIERCKPT_LIBRARY": str(build / "runtime/client/libtierckpt.so"),
                 "TIERCKPT_BIN_DIR": str(programs(build, work)), "PYTHONPATH": python_path, "OMP_NUM_THREADS": "1",
                 "UCX_MEM_EVENTS": "n"})

    def begin(self, task):
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline().split()[1])

    def wait(self):
        """Returns the exit status of the only trainee."""
        return int(self.process.stdout.readline().split()[2])

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Story:
    def __init__(self, build, work, seed, say):
        self.work, self.seed, self.say, self.dice = work, seed, say, random.Random(f"driver {seed}")
        self.zygote = Zygote(build, work)
        self.journal = work / "journal"
        self.launch, self.grown, self.memory_since = 0, False, 1
        for name in ("save", "run"):
            (work / name).mkdir()
        self.config = {"job": "changes", "save_dir": str(work / "save"), "runtime_dir": str(work / "run"),
                       "save_mem_interval": self.dice.choice((1, 1, 2)), "copies": 1, "linger_s": 60,
                       "save_storage_interval": self.dice.choice((0, 3, 5)), "memory_cap_bytes": "1GiB",
                       "node": "n0", "max_restore_tries": 1000}
        self.figures = {"launches": 0, "compared": 0, "other layout": 0}

    def tell(self):
        for _ in range(self.dice.randint(3, 5)):
            if not self.one_launch():
                self.grown = not self.grown_now()  # the user restarts it with the model that was saved
                self.figures["other layout"] += 1
                if not self.one_launch():
                    raise Broken("neither model can be loaded")
            if self.dice.random() < 0.3 and self.config["save_storage_interval"]:
                self.say("the node's memory is lost")
                kill_all(self.work)
                self.memory_since = self.launch + 1
        self.grown = self.grown_now()

    def one_launch(self):
        """False: the version has another layout."""
        self.launch += 1
        self.figures["launches"] += 1
        known = self.known()
        pid = self.zygote.begin({"seed": self.seed, "launch": self.launch, "grown": self.grown, "config": self.config,
                                 "journal": str(self.journal), "output": str(self.work / f"out.{self.launch}"),
                                 "steps": (max(self.newest_step(), 0)) + self.dice.randint(3, 40)})
        if self.dice.random() < 0.5:
            self.kill_later(pid)
        status = self.wait_for(pid)
        self.say(f"launch {self.launch}, {'grown' if self.grown else 'plain'}: ended with {status}")
        self.judge(known, status)
        self.grown = self.grown_now() if status != LAYOUT else self.grown
        return status != LAYOUT

    def kill_later(self, pid):
        before = len(self.events())
        deadline = time.monotonic() + 5
        most = self.dice.randint(1, 100)
        while len(self.events()) < before + most and time.monotonic() < deadline and _is_there(pid):
            time.sleep(0.002)
        send(pid, signal.SIGKILL)

    def wait_for(self, pid):
        watch = subprocess.Popen(("timeout", str(BOUND_S), "tail", f"--pid={pid}", "-f", "/dev/null"))
        if watch.wait() == 124:
            send(pid, signal.SIGKILL)
            self.zygote.wait()
            raise Broken(f"launch {self.launch} hangs: {self.output()}")
        return self.zygote.wait()

    # ---- judging --------------------------------------------------------------------------------------------------

    def judge(self, known, status):
        mine = [event for event in self.events() if event["launch"] == self.launch]
        for event in mine:
            if event["event"] == "wrong":
                raise Broken(f"launch {self.launch}: {event['why']}")
            if event["event"] == "loaded":
                self.judge_loaded(event, known)
        left = [event for event in mine if event["event"] == "leaves"]
        if status not in (0, LAYOUT, -signal.SIGKILL) and not left:
            raise Broken(f"launch {self.launch} ended with {status}: {self.output()}")

    def judge_loaded(self, event, known):
        if event["none"]:
            if known:
                raise Broken(f"launch {self.launch} starts fresh, {known} was committed")
            return
        saved = self.saved(event["origin"], event["step"])
        self.figures["compared"] += 1
        if event["digest"] not in saved:
            raise Broken(f"launch {self.launch}: the state loaded as step {event['step']} of launch {event['origin']} "
                         f"differs from the saved state: {event['digest']}, not {saved}")
        if known and (event["origin"], event["step"]) < known:
            raise Broken(f"launch {self.launch} loaded {event['origin'], event['step']}, {known} was committed")

    def saved(self, launch, step):
        """The digests of the states that this launch may have saved as this step. A refused save makes no version; the
        outcome of the last save before a kill is unknown."""
        mine = [event for event in self.events() if event["launch"] == launch]
        return [event["digest"] for event, after in zip(mine, [*mine[1:], {"event": "end"}], strict=True)
                if event["event"] == "save" and event["step"] == step and after["event"] != "refused"]

    def known(self):
        """(launch, step) of the newest version that must exist."""
        found = []
        for event in self.events():
            if event["event"] == "state":
                base = self.base_of(event["launch"])
                in_memory = event["committed"] if event["launch"] >= self.memory_since else 0
                step = max(in_memory, event["published"])
                if step > base[1]:
                    found.append((event["launch"], step))
                elif step:
                    found.append(base)
        return max(found, default=None)

    def base_of(self, launch):
        """The (launch, step) of the last load of this launch."""
        loads = [(e["origin"], e["step"]) for e in self.events() if e["event"] == "loaded" and e["launch"] == launch]
        return loads[0] if loads else (0, 0)

    def newest_step(self):
        return max((event["step"] for event in self.events()), default=0)

    def grown_now(self):
        """True if the newest launch has grown the model."""
        return self.grown or any(e["event"] == "act" and e["name"] == "grow" and e["launch"] == self.launch
                                 for e in self.events())

    def events(self):
        if not self.journal.exists():
            return []
        text = self.journal.read_text(encoding="utf-8")
        whole = text[:text.rfind("\n") + 1]  # the last line may still be incomplete
        return [json.loads(line) for line in whole.splitlines()]

    def output(self):
        return (self.work / f"out.{self.launch}").read_text(encoding="utf-8", errors="replace")[-1500:]

    def close(self):
        self.zygote.close()
        kill_all(self.work)


def _is_there(pid):
    return Path(f"/proc/{pid}").exists()


def main():
    options = arguments(__doc__)
    try:
        import torch  # noqa: F401  checks that it is installed
    except ImportError:
        print("skipped: PyTorch is not installed")
        return 77
    return Suite("changes", Story).run(options)


if __name__ == "__main__":
    sys.exit(main())
