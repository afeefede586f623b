# SPDX-License-Identifier: Apache-2.0
"""One run: a job over a storage that lies from a seed, and what must be true of it nevertheless."""

import json
import re
import time

from job import Job
from job_story import JobStory
from lying import LyingDirectory, Lies
from outages import CLAIM, PART, WHOLE, Outage
from seeded import Broken

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


class Story(JobStory):
    """`tell` does it; raises Broken."""

    def __init__(self, build, work, seed, say):
        super().__init__(work, seed, say)
        dice = self.dice
        nodes, ranks = dice.choice((1, 1, 2)), dice.choice((1, 2))
        self.settings = {"nodes": nodes, "ranks": ranks, "twins": dice.choice((1, nodes * ranks)), "config": {
            "save_mem_interval": dice.choice((1, 2, 5)), "save_storage_interval": dice.choice((2, 5, 10)),
            "max_ckpt_num": dice.choice((1, 2, 3)), "copies": dice.choice((1, 2)) if nodes > 1 else 1}}
        self.storage = LyingDirectory(build / "tests/storage_faults/lying_fs", work, seed)
        self.job = Job(build, work, self.storage.path, self.settings)
        self.settings["config"]["storage_timeout_ms"] = dice.choice((2000, 20000))
        self.figures["lies"] = 0

    def tell(self):
        self.say(f"settings {self.settings}")
        launch = self.launch(None, must="fresh")
        self.wait_published(launch, 2)
        for _ in range(self.dice.randint(2, 3)):
            launch = self.dice.choice((self.train_on, self.look, self.start_again, self.start_again,
                                       self.lose_everything, self.lose_everything, self.outage, self.outage,
                                       self.start_in_outage, self.lose_everything_in_outage))(launch)
        self.figures["lies"] = sum(self.storage.told().values())

    # ---- what happens ---------------------------------------------------------------------------------------------

    def train_on(self, launch):
        """Storage lies while there is training: it goes on, and so does publishing once storage answers correctly."""
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
        if new is None:  # an error, rightly: once storage answers correctly, all that is known is there
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

    # ---- what is promised -----------------------------------------------------------------------------------------

    def forgives(self):
        warned = "is damaged" in self.job.logs() or "passed over" in self.job.logs()
        return warned and self.storage.told().get("FLIP", 0) > 0

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

    def close(self):
        self.job.close()
        self.storage.close()
