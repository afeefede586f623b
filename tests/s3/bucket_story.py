# SPDX-License-Identifier: Apache-2.0
"""One run: a job whose bucket is behind a proxy, faults from a seed, and what must be true of it nevertheless."""

import os
import re
import time
from contextlib import ExitStack

from bucket_watch import BUCKET, Bucket, Watch
from job import JOB, Job
from job_story import BOUND_S, JobStory
from proxy import Proxy
from seeded import Broken
from servers import ENVIRONMENT, SeaweedFS

STATUSES = (500, 502, 503, 504, 429, 409)
SLOW_DOWN = {"status": 503, "body": "<Error><Code>SlowDown</Code></Error>"}
REQUESTS = (("PUT", "shard-"), ("PUT", "partNumber=1"), ("PUT", "partNumber"), ("POST", "uploads"),
            ("POST", "uploadId"), ("PUT", "manifest"), ("PUT", "term"), ("DELETE", ".*"), ("GET", "list-type"),
            ("GET", "uploads"), ("GET", "shard-"), ("GET", "manifest"), ("GET", "term"), ("HEAD", ".*"))
UPLOADING = (("POST", "uploads"), ("PUT", "partNumber"), ("POST", "uploadId"))  # what a kill leaves behind
HELD = "held by a start whose trainers are alive|another start"
OTHER_RANK = r"\brank \d+: |another rank"  # an error of it says why
LOOK_S = 30  # in which a server that was not killed answers somebody who looks


def QUIET():
    return False


def DOWN():
    return True


def draw_fault(dice):
    """(kind, further arguments) of one fault of the proxy."""
    kind = dice.choice(("cut", "cut", "lose", "lose", "delay", "delay", "duplicate", "corrupt", "corrupt_answer",
                        "cut_answer", "answer", "answer", "slow_down", "hang"))
    method, path = dice.choice((*REQUESTS, (".*", ".*"), ("PUT", ".*"), ("GET", ".*")))
    details = {"method": method, "path": path, "times": dice.choice((1, 1, 2, 4)),
               "after": dice.choice((0, 0, dice.randrange(20)))}
    if kind == "delay":
        details["seconds"] = dice.choice((0.05, 0.5, 3))
    elif kind == "hang":
        details |= {"seconds": dice.choice((1, 7)), "times": 1}
    elif kind == "answer":
        details["status"] = dice.choice(STATUSES)
    elif kind == "slow_down":
        return "answer", details | SLOW_DOWN
    return kind, details


def failures(outcomes):
    return [str(outcome) for outcome in outcomes if not isinstance(outcome, int) and outcome != "fresh"]


def has_reason(outcomes, reason):
    """Whether each rank that fails says the reason, or that another rank has it, and one says it."""
    errors = failures(outcomes)
    return any(re.search(reason, error) for error in errors) and all(
        re.search(f"{reason}|{OTHER_RANK}", error) for error in errors)


class BucketStory(JobStory):
    """`tell` does it; raises Broken. Trouble is a function: whether it has happened, so that it excuses an error."""

    def __init__(self, build, work, seed, say):
        super().__init__(work, seed, say)
        dice = self.dice
        nodes, ranks = dice.choice((1, 2, 2, 2, 3)), dice.choice((1, 1, 2))
        self.settings = {
            "nodes": nodes, "ranks": ranks, "twins": dice.choice((1, nodes * ranks)), "step_ms": dice.choice((5, 30)),
            "count": dice.choice((20000, 1200000, 1200000, 1200000)),  # a shard of the latter is uploaded in two parts
            "config": {"save_mem_interval": dice.choice((1, 2, 5)), "save_storage_interval": dice.choice((4, 10)),
                       "max_ckpt_num": dice.choice((1, 2, 3)), "copies": dice.choice((1, 2, 2)) if nodes > 1 else 1,
                       "storage_timeout_ms": dice.choice((5000, 20000))}}
        self.build, self.with_race = build, seed % 3 == 0  # or a few runs might have none
        self.parts = ExitStack()  # what has been set up
        self.server = self.proxy = self.bucket = self.job = self.watch = None
        self.family = "n"  # of nodes, on which the job is
        self.unfinished = set()  # uploads, when something was killed
        self.figures |= {"faults": 0, "kills": 0, "races": 0, "unfinished": 0, "looks": 0, "versions": 0}

    def tell(self):
        self.say(f"settings {self.settings}")
        self.set_up()
        launch = self.launch(QUIET, must="fresh")
        self.wait_published(launch, 1)
        for happens in self.draw_events():
            launch = happens(launch)
            self.be_quiet()
            self.wait_published(launch, 1)
            self.watch.judge()
        self.end(launch)

    def set_up(self):
        self.server = SeaweedFS(self.work / "server")
        self.parts.callback(self.server.close)
        self.proxy = Proxy(self.server.port)
        self.parts.callback(self.proxy.close)
        prefix = f"a/{JOB}/"
        self.bucket = Bucket(self.server.url, prefix, BOUND_S)
        self.bucket.make()
        clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        self.job = Job(self.build, self.work, f"s3://{BUCKET}/a", self.settings, clean | ENVIRONMENT | {
            "AWS_ENDPOINT_URL_S3": self.proxy.url, "AWS_EC2_METADATA_DISABLED": "true"})
        self.parts.callback(self.job.close)
        self.watch = Watch(Bucket(self.server.url, prefix, LOOK_S))
        self.parts.callback(self.watch.end)

    def draw_events(self):
        events = self.dice.choices((self.train_on, self.agent_killed, self.agent_killed, self.start_again,
                                    self.start_again, self.node_lost, self.node_lost, self.everything_lost,
                                    self.start_killed, self.server_killed, self.race, self.race),
                                   k=self.dice.randint(2, 4))
        return [self.race, *events[1:]] if self.with_race else events

    # ---- faults ---------------------------------------------------------------------------------------------------

    def noise(self):
        """Faults that the proxy has ready; or none. They are trouble once a request has met one of them."""
        before = len(self.proxy.done)
        faults = [draw_fault(self.dice) for _ in range(self.dice.choice((0, 1, 3, 10, 25)))]
        for kind, details in faults:
            self.proxy.fault(kind, **details)
        self.say(f"noise: {faults}")
        return (lambda: len(self.proxy.done) > before or self.proxy.held > 0) if faults else QUIET

    def be_quiet(self):
        self.proxy.clear()
        self.wait("no request is held up", lambda: self.proxy.held == 0)

    def moment(self):
        """Waits until a request of some kind is under way, but not for long, or for a while."""
        method, path = self.dice.choice((*REQUESTS, *UPLOADING, *UPLOADING))
        until, extra = time.monotonic() + self.dice.choice((1, 5, 5)), self.dice.choice((0, 0, self.dice.random() / 2))
        if self.dice.random() < 0.5:  # then it is still under way
            self.proxy.fault("pause", method, path, seconds=0.5)
        before = self.proxy.count(method, path)
        while time.monotonic() < until and self.proxy.count(method, path) == before:
            time.sleep(0.002)
        time.sleep(extra)
        self.say(f"moment: {method} {path}, {extra:.2f} s later")

    def node(self):
        return f"{self.family}{self.dice.randrange(self.settings['nodes'])}"

    def kill_agent(self):
        node = self.node()
        self.wait(f"the agent of {node} runs and is killed", lambda: self.job.kill_agent(node))
        self.note_kill(f"agent of {node} is killed")

    def kill_node(self):
        """Whether memory is lost with it."""
        node = self.node()
        self.wait(f"node {node} runs and is lost", lambda: self.job.lose_node(node))
        self.note_kill(f"node {node} is lost")
        return self.settings["config"]["copies"] == 1

    def leave(self, family):
        """All nodes of a family end. Returns how many had processes."""
        return sum(self.job.lose_node(f"{family}{i}") > 0 for i in range(self.settings["nodes"]))

    def note_kill(self, text, count=1):
        self.figures["kills"] += count
        self.note_unfinished()
        self.say(text)

    def note_unfinished(self):
        self.unfinished |= set(self.bucket.uploads())
        self.figures["unfinished"] = len(self.unfinished)

    # ---- what happens ---------------------------------------------------------------------------------------------

    def train_on(self, launch):
        self.noise()
        self.wait("twenty more steps", self.more_steps(launch, 20))
        return launch

    def agent_killed(self, launch):
        """Training goes on, and the agent is started again."""
        self.noise()
        for _ in range(self.dice.choice((1, 1, 2))):
            self.moment()
            self.kill_agent()
        self.wait("ten more steps", self.more_steps(launch, 10))
        return launch

    def start_again(self, launch):
        noise = self.noise()
        self.moment()
        launch.kill()
        return self.restart(noise, lose=False)

    def node_lost(self, launch):
        """All processes of a node: the launcher ends the others, and starts all of them on a new node of that name."""
        noise = self.noise()
        self.moment()
        lose = self.kill_node()
        launch.kill()
        return self.restart(noise, lose)

    def everything_lost(self, launch):
        noise = self.noise()
        self.moment()
        launch.kill()
        self.note_kill("all nodes are lost", self.leave(self.family))
        return self.restart(noise, lose=True)

    def start_killed(self, launch):
        """A start is killed on its way, and with it perhaps a node or an agent."""
        noise = self.noise()
        launch.kill()
        known = self.known(lose=False)
        killed = self.started(family=self.family)
        self.moment()
        lose = self.dice.choice((lambda: False, self.kill_agent, self.kill_node))()
        killed.kill()
        self.note_base(killed)
        self.say(f"start {killed.number} is killed, {known} was known")
        return self.restart(noise, bool(lose))

    def server_killed(self, launch):
        """Meanwhile the trainers perhaps start again, from memory; the server has what it had."""
        self.moment()
        self.note_kill("the server is killed")  # before that, because it cannot be asked afterwards
        new = launch
        with self.watch.server_down():
            self.server.process.kill()
            self.server.process.wait()
            if self.dice.random() < 0.5:
                launch.kill()
                known = self.known(lose=False)
                new = self.launch(DOWN, must=known)
            time.sleep(self.dice.random() * 3)
            self.server.start()
            self.bucket.probe()
        self.say("the server is back")
        if new is None:
            new = self.launch(QUIET, must=self.known(lose=False))
        self.wait("five more steps", self.more_steps(new, 5))
        return new

    def restart(self, noise, lose):
        known = self.known(lose)
        self.say(f"started again, known {known}, unfinished uploads: {list(self.bucket.uploads().values())}")
        new = self.launch(noise, must=known)
        if new is None:  # an error, rightly: when storage is well again, all that is known is there
            self.be_quiet()
            new = self.launch(QUIET, must=known)
        if lose:
            self.memory_since = new.number
        return new

    def race(self, launch):
        """Two launchers start the job at once, the second one on nodes that have nothing of it: one gets it."""
        self.figures["races"] += 1
        noise = self.noise() if self.dice.random() < 0.5 else QUIET
        self.moment()
        launch.kill()
        known, on_storage = self.known(lose=False), self.known(lose=True)
        here, there = self.family, "m" if self.family == "n" else "n"
        first = self.started(family=here, run_id=f"run {here}")
        time.sleep(self.dice.choice((0, 0, self.dice.random())))
        second = self.started(family=there, run_id=f"run {there}")
        self.wait("both starts are answered", lambda: self.answered(first) and self.answered(second))
        self.say(f"race, known {known}, on storage {on_storage}: {first.restored()}, {second.restored()}")
        winner = self.judge_race(noise, first, second)
        for loser in (first, second):
            if loser is not winner:
                loser.kill()
        if winner is second:
            self.judge(second, noise, on_storage)
            self.family, self.memory_since = there, second.number
            self.leave(here)
        else:
            self.leave(there)
        if winner is first:
            self.judge(first, noise, known)
        if winner is None:
            self.be_quiet()
            winner = self.launch(QUIET, must=known)
        return winner

    def started(self, **how):
        how.setdefault("family", self.family)
        return super().started(**how)

    def end(self, launch):
        """The last fault, and a start without any: its coordinator leaves nothing of what was interrupted."""
        launch = self.dice.choice((self.start_again, self.node_lost, self.everything_lost))(launch)
        self.be_quiet()
        launch.kill()
        self.say(f"before the last start, unfinished: {list(self.bucket.uploads().values())}")
        launch = self.launch(QUIET, must=self.known(lose=False))
        self.wait_published(launch, 2)
        launch.kill()
        self.wait("no unfinished upload is left", lambda: not self.bucket.uploads())
        self.wait_settled()
        self.job.lose_nodes()  # or an agent may delete what is being read
        self.judge_bucket()
        self.watch.end()
        self.watch.judge_all()

    def wait_settled(self):
        """The agents have drained and deleted what they had to."""
        seen = [None, time.monotonic()]

        def settled():
            keys = self.bucket.keys()
            if keys != seen[0]:
                seen[:] = keys, time.monotonic()
            return time.monotonic() - seen[1] > 2
        self.wait("the bucket stays as it is", settled)

    # ---- what is promised -----------------------------------------------------------------------------------------

    def wait(self, what, done):
        super().wait(what, done)
        self.watch.judge()

    def judge_error(self, launch, trouble, outcomes):
        self.figures["errors"] += 1
        text = " | ".join(map(str, outcomes))
        self.say(f"launch {launch.number}: {text}")
        if not trouble():
            raise Broken(f"launch {launch.number} fails although storage is well: {text}")
        if not has_reason(outcomes, re.escape(self.job.save_dir)):
            raise Broken(f"launch {launch.number} fails without a reason that names the bucket: {text}")

    def judge_race(self, noise, *starts):
        """The one that has got the job."""
        for start in starts:
            self.judge_silent(start)
        trouble = noise()
        won = [start for start in starts if not failures(start.restored())]
        if len(won) > 1 and not trouble:
            raise Broken(f"two starts got the job: {[start.restored() for start in starts]}")
        if len(won) > 1:  # the note of the first one's holder was late: it may save nothing any more, and says so
            self.wait("one of two starts is over", lambda: any(map(self.is_over, won)))
            self.void |= {start.number for start in won if self.is_over(start)}
            won = [start for start in won if start.number not in self.void]
            return won[0] if won else None
        reason = f"{HELD}|{re.escape(self.job.save_dir)}" if trouble else HELD
        for start in starts:
            if start not in won and not has_reason(start.restored(), reason):
                raise Broken(f"start {start.number} is not refused with a reason: {start.restored()}")
        if not won and not trouble:
            raise Broken(f"no start got the job: {[start.restored() for start in starts]}")
        return won[0] if won else None

    @staticmethod
    def is_over(launch):
        return any("has taken it over" in text for text in launch.texts())

    def judge_bucket(self):
        """All that is there is whole, and all that was reported as published is there or superseded."""
        status, text, complaint = self.job.ask("verify", "published")
        if status != 0:
            raise Broken(f"verify: {status}: {text} {complaint}")
        s = self.settings
        found, wrong = self.bucket.versions(self.work / "copies", s["nodes"] * s["ranks"], s["twins"])
        self.say(f"in the bucket: {found}")
        if wrong:
            raise Broken(f"read without tierckpt: {wrong}")
        if half := self.bucket.half():
            raise Broken(f"half a version at the end: {half}")
        self.figures["versions"] += len(found)
        for version in set(self.versions("published")) - set(found):
            if sum(other > version for other in found) < s["config"]["max_ckpt_num"]:
                raise Broken(f"{version} was reported as published, and the bucket has {sorted(found)}")

    def close(self):
        if self.watch:
            self.figures |= {"faults": len(self.proxy.done), "looks": self.watch.looks}
        self.parts.close()
