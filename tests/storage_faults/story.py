# SPDX-License-Identifier: Apache-2.0
"""One run: a job over a storage that lies from a seed, and what must be true of it nevertheless."""

import json
import random
import re
import time

from job import Job
from lying import LyingDirectory, Lies
from outages import CLAIM, PART, WHOLE, Outage
from seeded import Broken

BOUND_S = 120  # for whatever has to come to an end; the lies of one run hold a process up for less
ERRORS = ("EIO", "ESTALE", "EMFILE", "EACCES", "ENOSPC", "EDQUOT", "ETIMEDOUT")
REASONS = ("Input/output error", "Stale file handle", "Too many open files", "Permission denied", "No space left",
           "Disk quota exceeded", "timed out", "did not answer", "does not answer", "Read-only file system", "ended early", "damaged", "digest", "shorter", "short",
           "is missing", "No such file", "not whole", "unreadable", "cannot be read", "not valid JSON", "belongs to job", "ends at byte", "reads format",
           "ends before")


def lies_of(dice):
    """What storage does while it lies."""
    kinds = dice.choice((
        dice.sample(ERRORS, dice.randint(1, 3)), dice.sample(ERRORS, 1), ["SHORT"], ["OLD"], ["HANG"], ["FLIP"],
        ["HANG", dice.choice(ERRORS)], ["OLD", "SHORT", dice.choice(ERRORS)]))
    hang_ms = dice.choice((100, 1000, 8000))
    per_1000 = dice.choice((5, 50, 300, 1000))
    if "HANG" in kinds:
        per_1000 = min(per_1000, 30000 // hang_ms)
    calls = dice.choice((("look", "open", "make", "read", "write", "list", "move", "remove", "sync"), ("read",),
                         ("open", "list", "look"), ("write", "sync", "make"), ("move", "remove")))
    needed = {"SHORT": "read", "FLIP": "read", "OLD": "list"}
    calls = tuple(dict.fromkeys((*calls, *(needed[kind] for kind in kinds if kind in needed))))
    only = dice.choice(("", "", "", "manifest.json", ".safetensors", "term.", "/v0"))
    return Lies(tuple(kinds), per_1000, calls, "" if "OLD" in kinds else only, "", hang_ms)


class Story:
    """`tell` does it; raises Broken."""

    def __init__(self, build, work, seed, say):
        self.dice, self.say, self.work = random.Random(seed), say, work
        dice = self.dice
        nodes, ranks = dice.choice((1, 1, 2)), dice.choice((1, 2))
        self.settings = {"nodes": nodes, "ranks": ranks, "twins": dice.choice((1, nodes * ranks)), "config": {
            "save_mem_interval": dice.choice((1, 2, 5)), "save_storage_interval": dice.choice((2, 5, 10)),
            "max_ckpt_num": dice.choice((1, 2, 3)), "copies": dice.choice((1, 2)) if nodes > 1 else 1}}
        self.storage = LyingDirectory(build / "tests/storage_faults/lying_fs", work, seed)
        self.job = Job(build, work, self.storage.path, self.settings)
        self.settings["config"]["storage_timeout_ms"] = dice.choice((2000, 20000))
        self.bases = {}  # launch -> (origin, step) of what it restored
        self.figures = {"launches": 0, "restored": 0, "errors": 0, "lies": 0}
        self.memory_since = 1  # the first launch whose commits are still in memory

    def tell(self):
        self.say(f"settings {self.settings}")
        launch = self.launch(lies=None, must="fresh")
        self.wait_published(launch, 2)
        for _ in range(self.dice.randint(2, 3)):
            launch = self.dice.choice((self.train_on, self.look, self.start_again, self.start_again,
                                       self.lose_everything, self.lose_everything, self.outage, self.outage,
                                       self.start_in_outage, self.lose_everything_in_outage))(launch)
        self.figures["lies"] = sum(self.storage.told().values())

    # ---- what happens ---------------------------------------------------------------------------------------------

    def train_on(self, launch):
        """Storage lies while there is training: it goes on, and once storage is well again, so does publishing."""
        lies = lies_of(self.dice)
        self.say(f"launch {launch.number} trains on: {lies}")
        self.storage.lie(lies)
        self.wait("ten more steps", self.more_steps(launch, 10))
        time.sleep(self.dice.random() * 2)
        self.wait("ten more steps", self.more_steps(launch, 10))
        self.storage.be_truthful()
        self.wait_published(launch, 1)
        return launch

    def look(self, launch):
        """Somebody lists, verifies, exports and prunes while storage lies: an answer is right, or it is an error."""
        lies = lies_of(self.dice)
        known = max(self.versions("published"))
        self.say(f"looked at, {known} is published: {lies}")
        self.storage.lie(lies)
        self.judge_list(self.job.ask("--json", "ls"), known, lies)
        self.judge_export(self.job.ask("export", str(self.work / f"export.{time.monotonic_ns()}")), known, lies)
        for command in (("verify", "published"), ("prune", "--keep", "1"), ("status",)):
            self.say(f"{' '.join(command)}: {self.job.ask(*command)}")
        self.storage.be_truthful()
        self.wait_published(launch, 1)
        return launch

    def start_again(self, launch):
        """Trainers are killed while storage lies; memory is whole."""
        return self.restart(launch, lose=False)

    def lose_everything(self, launch):
        """All nodes are lost, and then storage lies."""
        return self.restart(launch, lose=True)

    def restart(self, launch, lose):
        lies = lies_of(self.dice)
        before = self.dice.random() < 0.5
        if before:
            self.storage.lie(lies)
            self.wait("five more steps", self.more_steps(launch, 5))
        launch.kill()
        if lose:
            self.job.lose_nodes()
        known = self.known(lose)
        self.storage.lie(lies)
        self.say(f"all {'nodes are lost' if lose else 'trainers are killed'}, known {known}: {lies}")
        new = self.launch(lies, must=known)
        if new is None:  # an error, rightly: when storage is well again, all that is known is there
            self.storage.be_truthful()
            new = self.launch(None, must=known)
        self.storage.be_truthful()
        if lose:
            self.memory_since = new.number
        self.wait_published(new, 1)
        return new

    def outage(self, launch):
        """Storage is away while training runs: the ranks report that, training continues, and publishes when storage is back."""
        outage = self.dice.choice(WHOLE + PART[:3])
        self.say(f"launch {launch.number} trains on: {outage.name}")
        committed = len(self.versions("committed"))
        outage.begin(self.storage)
        self.wait("each rank reports it", lambda: all(outage.reason in text for text in launch.health()))
        self.wait("more commits", lambda: len(self.versions("committed")) >= committed + 5)
        status, text, complaint = self.job.ask("status")
        if status != 1 or not re.search(rf"storage has been failing since .*{outage.reason}", text):
            raise Broken(f"status while {outage.name}: {status}: {text} {complaint}")
        if self.dice.random() < 0.5:
            return self.restart_in(outage, launch)
        return self.storage_is_back(launch)

    def start_in_outage(self, launch):
        """Trainers are killed, and storage goes away at once."""
        outage = self.dice.choice(WHOLE + PART + CLAIM)
        launch.kill()
        outage.begin(self.storage)
        return self.restart_in(outage, launch)

    def lose_everything_in_outage(self, launch):
        """All nodes are lost, and storage goes away: nothing can be restored."""
        outage = self.dice.choice(WHOLE)
        launch.kill()
        self.job.lose_nodes()
        outage.begin(self.storage)
        return self.restart_in(outage, launch, lose=True)

    def restart_in(self, outage, launch, lose=False):
        reserved = not lose and self.job.reserved()
        launch.kill()
        known = self.known(lose)
        self.say(f"started again, known {known}: {outage.name}, {'with' if reserved else 'without'} reserved terms")
        new = self.launch(outage, must=known)
        if outage.restart is not None and (new is not None) is not (outage.restart or reserved):
            raise Broken(f"{'a' if new else 'no'} restart while {outage.name}")
        if new is None:
            self.storage.be_truthful()
            new = self.launch(None, must=known)
        else:
            self.wait("ten more steps", self.more_steps(new, 10))
        if lose:
            self.memory_since = new.number
        return self.storage_is_back(new)

    def storage_is_back(self, launch):
        self.storage.be_truthful()
        self.wait_published(launch, 1)
        self.wait("each rank reports that it is over", lambda: all(not text for text in launch.health()))
        return launch

    def launch(self, lies, must):
        """Starts all ranks and judges what comes of their restore; None if it is an error, which only lies excuse."""
        self.figures["launches"] += 1
        launch = self.job.start()
        self.wait(f"launch {launch.number} restores", lambda: self.answered(launch))
        outcomes = launch.restored()
        errors = [outcome for outcome in outcomes if str(outcome).startswith("ERROR") or outcome is None]
        if any(str(outcome).startswith("WRONG") for outcome in outcomes):
            raise Broken(f"launch {launch.number}: {outcomes}")
        if errors:
            self.judge_error(launch, lies, outcomes)
            launch.kill()
            return None
        if len(set(outcomes)) != 1:
            raise Broken(f"launch {launch.number}: the ranks restored different things: {outcomes}")
        self.judge_restored(launch, outcomes[0], must)
        return launch

    def answered(self, launch):
        return all(outcome is not None or process.poll() is not None
                   for outcome, process in zip(launch.restored(), launch.processes))

    # ---- what is promised -----------------------------------------------------------------------------------------

    def judge_restored(self, launch, outcome, must):
        if outcome == "fresh":
            if must != "fresh":
                raise Broken(f"launch {launch.number} starts fresh, {must} was saved")
            self.bases[launch.number] = (launch.number, 0)
            return
        mine = lambda: [e for e in self.job.events("restored") if e["launch"] == launch.number]
        self.wait("the journal has what was restored", mine)  # it is written right after the output
        event = mine()[0]
        got = (event["origin"], event["step"])
        self.bases[launch.number] = got
        self.figures["restored"] += 1
        self.say(f"launch {launch.number} restored {got}")
        if must == "fresh" or got < must:
            warned = "is damaged" in self.job.logs() or "passed over" in self.job.logs()
            flipped = self.storage.told().get("FLIP", 0) > 0
            if not (flipped and warned):
                raise Broken(f"launch {launch.number} restored {got}, older than {must}")

    def judge_list(self, answer, known, lies):
        status, text, complaint = answer
        self.say(f"ls: {status}: {complaint}")
        if status == 0 and "OLD" not in lies.kinds:
            steps = [version["version"]["step"] for version in json.loads(text).get("published", [])]
            if max(steps, default=0) < known[1]:
                raise Broken(f"ls says that {steps} are published and no error, {known} is")

    def judge_export(self, answer, known, lies):
        status, text, complaint = answer
        self.say(f"export: {status}: {text} {complaint}")
        found = re.match(r"version \d+\.(\d+)", text)
        if status == 0 and not (found and int(found[1]) >= known[1]) and not set(lies.kinds) & {"OLD", "FLIP"}:
            raise Broken(f"export took {text!r}, {known} is published")

    def judge_error(self, launch, lies, outcomes):
        self.figures["errors"] += 1
        text = " | ".join(map(str, outcomes))
        self.say(f"launch {launch.number}: {text}")
        if lies is None:
            raise Broken(f"launch {launch.number} fails although storage is well: {text}")
        reasons = (lies.reason,) if isinstance(lies, Outage) else REASONS
        if not isinstance(lies, Outage) and "OLD" in lies.kinds:  # a listing that is out of date gives no other reason
            reasons += ("was committed, and no copy of it was found",)
        if not any(reason.lower() in text.lower() for reason in reasons):
            raise Broken(f"launch {launch.number} fails without a reason: {text}")

    def known(self, lose):
        """The newest version that must be restored: of what is published, and of what is in memory if that is left."""
        newest = max(self.versions("published"), default=None)
        if not lose:
            committed = [v for v in self.versions("committed", self.memory_since)]
            newest = max((v for v in (newest, max(committed, default=None), *self.kept_bases()) if v), default=None)
        bases = [base for base in self.bases.values() if base[1] > 0 and not lose]
        return max((v for v in (newest, *bases) if v), default="fresh")

    def kept_bases(self):
        return [base for number, base in self.bases.items() if number >= self.memory_since and base[1] > 0]

    def versions(self, name, since=1):
        """(origin, step) of each event."""
        found = []
        for event in self.job.events(name):
            base = self.bases.get(event["launch"], (event["launch"], 0))
            if event["launch"] >= since:
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

    def close(self):
        self.job.close()
        self.storage.close()
