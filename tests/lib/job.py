# SPDX-License-Identifier: Apache-2.0
"""A job on this machine: nodes that are names, their agents, and launches of trainers (tests/cluster/trainer.c)."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

from daemons import daemons, kill_all, programs, send

JOB = "faulty"


class Launch:
    """One start of the trainers. `outcome` is what became of its restore."""

    def __init__(self, number, processes, outputs):
        self.number, self.processes, self.outputs = number, processes, outputs

    def texts(self):
        return [path.read_text(encoding="utf-8", errors="replace") for path in self.outputs]

    def ended(self):
        return [process.poll() for process in self.processes]

    def restored(self):
        """Per rank: None (no answer yet), "fresh", (origin, step) or an error text."""
        return [_restored(text) for text in self.texts()]

    def steps(self):
        """The newest step of the slowest rank."""
        return min(max(map(int, re.findall(r"^STEP (\d+)$", text, re.M)), default=0) for text in self.texts())

    def health(self):
        """Per rank what it was told last of trouble with storage, empty for none."""
        told = [re.findall(r"^HEALTH (.*)$", text, re.M) for text in self.texts()]
        return ["" if not lines or lines[-1].startswith("good") else lines[-1] for lines in told]

    def kill(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


def _restored(text):
    if "WRONG" in text:
        return "WRONG bytes: " + text[text.index("WRONG"):].splitlines()[0]
    if re.search(r"^FRESH$", text, re.M):
        return "fresh"
    found = re.search(r"^RESTORED .*step=(\d+)", text, re.M)
    if found:
        return int(found[1])
    found = re.search(r"^ERROR (.*)$", text, re.M)
    return f"ERROR {found[1]}" if found else None


class Job:
    def __init__(self, build, work, save_dir, settings, environment=None):
        self.build, self.work, self.save_dir, self.settings = Path(build), work, save_dir, settings
        self.environment = {**(os.environ if environment is None else environment), "UCX_MEM_EVENTS": "n",
                            "TIERCKPT_BIN_DIR": str(work / "bin")}
        self.first = "n0"
        self.history = work / "history"
        self.launches = []
        (work / "run").mkdir()
        programs(self.build, work)

    def config(self, node):
        return {"job": JOB, "node": node, "runtime_dir": str(self.work / "run"), "save_dir": str(self.save_dir),
                "linger_s": 60, "memory_cap_bytes": "1GiB", "heartbeat_ms": 200, "peer_timeout_ms": 2000,
                "restore_wait_ms": 1000, "version_timeout_ms": 10000, "max_restore_tries": 1000, "log_level": 3,
                **self.settings["config"]}

    def start(self, family="n", **more):
        """All ranks. Rank r is on node r // ranks of a node of the family. `more` goes to the configuration."""
        s, number = self.settings, len(self.launches) + 1
        self.first = f"{family}0"
        meeting = self.work / f"oob.{number}"
        meeting.mkdir()
        processes, outputs = [], []
        for rank in range(s["nodes"] * s["ranks"]):
            output = self.work / f"out.{number}.{rank}"
            with open(output, "wb") as out:
                processes.append(subprocess.Popen(
                    (self.build / "tests/cluster/cluster_trainer", "--json",
                     json.dumps(self.config(f"{family}{rank // s['ranks']}") | more), "--oob", meeting, "--rank",
                     str(rank), "--world", str(s["nodes"] * s["ranks"]), "--twins", str(s["twins"]), "--count",
                     str(s.get("count", 20000)), "--step-ms", str(s.get("step_ms", 5)), "--steps", "100000",
                     "--launch", str(number), "--lockstep", "--journal", self.history),
                    stdout=out, stderr=out, stdin=subprocess.DEVNULL, env=self.environment))
            outputs.append(output)
        self.launches.append(Launch(number, processes, outputs))
        return self.launches[-1]

    def ask(self, *command):
        """What `tierckpt` says on the first node: (exit status, output, complaints)."""
        config = self.work / f"{self.first}.json"
        config.write_text(json.dumps(self.config(self.first)), encoding="utf-8")
        try:
            done = subprocess.run((self.work / "bin/tierckpt", "--config", config, *command), capture_output=True,
                                  timeout=60, check=False, env=self.environment)
        except subprocess.TimeoutExpired:  # it waits for storage, as it says
            return 124, "", "no answer in 60 s"
        return (done.returncode, done.stdout.decode(errors="replace").strip(),
                done.stderr.decode(errors="replace").strip())

    def reserved(self):
        """Whether the first node's agent has terms for starts while storage is away."""
        _, text, _ = self.ask("--json", "status")
        return text.startswith("{") and "first" in json.loads(text)["reserved"]

    def lose_nodes(self):
        """Agents and supervisors of all nodes at once, and so their memory."""
        kill_all(self.work)

    def runtime(self, node):
        return self.work / "run" / JOB / node

    def lose_node(self, node):
        """Agent and supervisor, and so its memory. Returns how many processes that were."""
        return kill_all(self.runtime(node))

    def kill_agent(self, node):
        """Returns how many processes that were: none, while the supervisor starts it again."""
        return sum(send(pid, signal.SIGKILL) for pid in daemons(self.runtime(node), "tierckptd"))

    def events(self, name):
        """(launch, members) of every event of this name so far."""
        if not self.history.exists():
            return []
        text = self.history.read_text(encoding="utf-8")
        lines = text[:text.rfind("\n") + 1].splitlines()  # the last one may still be being written
        return [event for event in map(json.loads, lines) if event["event"] == name]

    def logs(self):
        return "".join(path.read_text(encoding="utf-8", errors="replace")
                       for path in sorted((self.work / "run").glob("*/*/agent.log")))

    def close(self):
        for launch in self.launches:
            launch.kill()
        with contextlib.suppress(TimeoutError):  # what hangs in storage ends when that is closed
            self.lose_nodes()
        shutil.rmtree(self.work / "run", ignore_errors=True)
