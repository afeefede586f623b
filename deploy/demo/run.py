# SPDX-License-Identifier: Apache-2.0
"""One training, watched: starts a job, follows what its trainers report, and can wait for a step or for the end."""

import pathlib
import time

import events
import nodes
import processes

WORLD_SIZE = 2 * nodes.RANKS_PER_NODE
POLL_SECONDS = 0.02
LEAVE_SECONDS = 20  # for launchers and agents after the last step
STARTS_MAX = 4  # of one rank; more means that the training dies as soon as it starts


class DemoError(Exception):
    """The demonstration cannot continue; the text names what it was waiting for."""


class Run:
    """Context manager around one job. say(text) prints a line of progress."""

    def __init__(self, make_network, directory, mode, steps, say, config=None, make_job=nodes.Job):
        self.directory = pathlib.Path(directory)
        self.steps = steps
        self._say = say
        reports = self.directory / "events"
        reports.mkdir(parents=True)
        self._reader = events.Reader(reports)
        text = pathlib.Path(__file__).resolve().parents[2] / "LICENSE"
        arguments = ["--mode", mode, "--steps", str(steps), "--text", str(text), "--events", str(reports)]
        self.job = make_job(make_network(), self.directory, arguments, config)
        self._gone = set()  # nodes that do not count any more

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.job.close()

    @property
    def events(self):
        return self._reader.all

    def of(self, kind, since=0.0):
        return [event for event in self.events if event["event"] == kind and event["at"] >= since]

    def start(self, *names):
        for name in names:
            self.job.add_node(name)
        self._say(f"start   {' and '.join(names)}: torchrun with {nodes.RANKS_PER_NODE} ranks each")

    def give_up(self, *names):
        """These nodes were lost: their end is no failure, and nothing is waited for there."""
        self._gone.update(names)

    def newest_step(self):
        return max((event["step"] for event in self.of("step")), default=0)

    def newest_step_now(self):
        self._poll()
        return self.newest_step()

    def wait(self, what, done, timeout):
        """Polls until done() is true; returns its value."""
        deadline = time.monotonic() + timeout
        while True:
            self._poll()
            result = done()
            if result:
                return result
            if not self._running():
                raise DemoError(f"every node ended before {what}")
            if sum(event["rank"] == 0 for event in self.of("started")) > STARTS_MAX:
                raise DemoError(f"the trainers die again and again, while waiting for {what}")
            if time.monotonic() > deadline:
                raise DemoError(f"waited {timeout} s for {what}")
            time.sleep(POLL_SECONDS)

    def _poll(self):
        for event in self._reader.poll():
            self._tell(event)

    def until_step(self, step, timeout=90):
        self.wait(f"step {step}", lambda: self.newest_step() >= step, timeout)

    def until_step_after(self, at, timeout=120):
        """A step that was computed after a restore after this time."""
        def done():
            restored = self.of("restored", at)
            return restored and self.of("step", restored[0]["at"])

        self.wait("the first step after the loss", done, timeout)

    def saw(self, node, text, timeout):
        """True once the log of the node's agent has the text; False after the timeout."""
        deadline = time.monotonic() + timeout
        while text not in node.agent_log():
            if time.monotonic() > deadline:
                return False
            self._poll()
            time.sleep(POLL_SECONDS)
        return True

    def until_ended(self, pids, timeout=60):
        """When the last of the processes had ended."""
        self.wait("the trainers of the surviving node to end", lambda: not any(map(processes.alive, pids)), timeout)
        return time.time()

    def until_final(self, timeout=120):
        """All ranks reached the last step, and launchers and agents have left by themselves."""
        self.wait("the last step", lambda: len(self.of("final")) >= WORLD_SIZE, timeout)
        deadline = time.monotonic() + LEAVE_SECONDS
        while self._running() and time.monotonic() < deadline:
            time.sleep(POLL_SECONDS)
        stayed = self._running()
        ending = f"processes of {', '.join(stayed)} stayed and are killed" if stayed else "all processes left"
        self._say(f"end     step {self.steps} reached; {ending}")

    def _running(self):
        """Names of the nodes that still have a process, lost ones left out."""
        return [name for name, node in self.job.nodes.items() if name not in self._gone and node.running()]

    def _tell(self, event):
        """One line for what a reader wants to see pass by; rank 0 speaks for all."""
        if event["rank"] != 0:
            return
        if event["event"] == "started":
            where = f"{WORLD_SIZE} trainers, rank 0 on {event['node']}"
            self._say(f"up      {where}; imports and rendezvous took {event['seconds']:.1f} s")
        elif event["event"] == "restored":
            self._say(f"restore step {event['step']} in {event['seconds']:.2f} s")
        elif event["event"] == "step" and event["step"] % 10 == 0:
            loss = float.fromhex(event["loss"])
            self._say(f"step    {event['step']:3d}  loss {loss:.4f}  {event['seconds'] * 1000:.0f} ms")
