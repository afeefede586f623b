# SPDX-License-Identifier: Apache-2.0
"""Stories of a job whose storage gives trouble: its launches, what each of them has to restore, and waiting."""

import random
import time

from seeded import Broken

BOUND_S = 120  # for whatever has to come to an end; no trouble that a story makes holds a process up for so long


class JobStory:
    """A story sets `job`, and says by `judge_error` which errors trouble excuses, and by `forgives` whether it excuses
    that an older version was restored."""

    def __init__(self, work, seed, say):
        self.dice, self.say, self.work = random.Random(seed), say, work
        self.bases = {}  # launch -> (origin, step) of what it restored
        self.figures = {"launches": 0, "restored": 0, "errors": 0}
        self.void = set()  # launches that another one has taken over: what they still saved does not count
        self.memory_since = 1  # the first launch whose commits are still in memory

    def forgives(self):
        return False

    # ---- launches -------------------------------------------------------------------------------------------------

    def launch(self, trouble, must):
        """Starts all ranks and judges what comes of that: None if it is an error, which only trouble excuses."""
        return self.judge(self.started(), trouble, must)

    def started(self, **how):
        self.figures["launches"] += 1
        return self.job.start(**how)

    def judge(self, launch, trouble, must):
        self.wait(f"launch {launch.number} restores", lambda: self.answered(launch))
        outcomes = launch.restored()
        errors = [outcome for outcome in outcomes if str(outcome).startswith("ERROR")]
        if any(str(outcome).startswith("WRONG") for outcome in outcomes):
            raise Broken(f"launch {launch.number}: {outcomes}")
        self.judge_silent(launch)
        if errors:
            self.judge_error(launch, trouble, outcomes)
            launch.kill()
            return None
        if len(set(outcomes)) != 1:
            raise Broken(f"launch {launch.number}: the ranks restored different things: {outcomes}")
        self.judge_restored(launch, outcomes[0], must)
        return launch

    @staticmethod
    def judge_silent(launch):
        """Of one that is answered and that the story has not killed. No trouble excuses that a trainer ends without an
        answer."""
        ends = zip(launch.restored(), launch.ended(), launch.texts(), strict=True)
        silent = [f"rank {rank} ended with {status} and without an answer: {text[-500:]!r}"
                  for rank, (outcome, status, text) in enumerate(ends) if outcome is None]
        if silent:
            raise Broken(f"launch {launch.number}: {'; '.join(silent)}")

    def answered(self, launch):
        return all(outcome is not None or process.poll() is not None
                   for outcome, process in zip(launch.restored(), launch.processes, strict=True))

    def judge_restored(self, launch, outcome, must):
        if outcome == "fresh":
            if must != "fresh":
                raise Broken(f"launch {launch.number} starts fresh, {must} was saved")
            self.bases[launch.number] = (launch.number, 0)
            return
        self.wait("the journal has what was restored", lambda: self.note_base(launch))  # right after the output
        got = self.bases[launch.number]
        self.figures["restored"] += 1
        self.say(f"launch {launch.number} restored {got}")
        if (must == "fresh" or got < must) and not self.forgives():
            raise Broken(f"launch {launch.number} restored {got}, older than {must}")

    def note_base(self, launch):
        """Whether the journal has what it has restored."""
        for event in self.job.events("restored"):
            if event["launch"] == launch.number:
                self.bases[launch.number] = (event["origin"], event["step"])
        return launch.number in self.bases

    def known(self, lose):
        """The newest version that must be restored: of what is published, and of what is in memory if that is left."""
        newest = max(self.versions("published"), default=None)
        if not lose:
            committed = max(self.versions("committed", self.memory_since), default=None)
            newest = max((v for v in (newest, committed, *self.kept_bases()) if v), default=None)
        return newest or "fresh"

    def kept_bases(self):
        return [base for number, base in self.bases.items() if number >= self.memory_since and base[1] > 0]

    def versions(self, name, since=1):
        """(origin, step) of each event."""
        found = []
        for event in self.job.events(name):
            base = self.bases.get(event["launch"], (event["launch"], 0))
            if event["launch"] >= since and event["launch"] not in self.void:
                found.append((event["launch"], event["step"]) if event["step"] > base[1] else base)
        return found

    # ---- waiting --------------------------------------------------------------------------------------------------

    def wait(self, what, done):
        deadline = time.monotonic() + BOUND_S
        while not done():
            if time.monotonic() > deadline:
                raise Broken(f"{what}: not within {BOUND_S} s")
            time.sleep(0.02)

    def more_steps(self, launch, count):
        goal = launch.steps() + count

        def done():
            dead = [process.poll() for process in launch.processes if process.poll() is not None]
            if dead:
                raise Broken(f"launch {launch.number}: a trainer ended with {dead}: {launch.restored()} "
                             f"{[text[-300:] for text in launch.texts()]}")
            return launch.steps() >= goal
        return done

    def wait_published(self, launch, count):
        """So many more versions of this launch are published from now on."""
        goal = self.published_by(launch) + count
        alive = self.more_steps(launch, 0)
        self.wait(f"launch {launch.number} publishes", lambda: alive() and self.published_by(launch) >= goal)

    def published_by(self, launch):
        return len({event["step"] for event in self.job.events("published") if event["launch"] == launch.number})
