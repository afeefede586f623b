# SPDX-License-Identifier: Apache-2.0
"""Judges the history of a campaign. What can be seen from outside of the promises:

    content     what is restored is right to the bit, whole, and of one version; so is what is published
    agreement   all ranks of a launch restore the same version
    intent      nothing is committed or restored that not every rank had been asked to save
    lost        nothing committed is lost that the copies cover; nothing published is lost at all
    monotonic   a launch never restores something older than the one before, but for what was lost beyond that
    held        no save holds a trainer longer than the block time, and some more for a loaded machine
    liveness    when all faults are over, commits go on, and the job ends
    processes   no agent dies of itself, none is left at the end, none grows without bound
    scope       nothing that is not ours is touched

A version is (launch that computed it, step): launches have ascending terms, so this is the order of versions.
"""

import re
from collections import defaultdict

# UCX 1.13 ends its process in some failures of a peer, below anything that an agent can check; the supervisor has the memory
# and starts the agent again.
UCX_ENDS = re.compile(r"\bu[cs][tps]_\w+\.[ch]:\d+ +Assertion|\btcp_\w+\.[ch]:\d+ +Assertion")
# Where a system call of UCX fails for want of descriptors or by an error, it ends its process too.
UCX_GIVES_UP = re.compile(r"\bu[cs][tps]_\w+\.[ch]:\d+ +Fatal: ")
COPIES = 2
BLOCK_MS = 2000
LOADED_MS = 6000      # what a trainer may be kept from running by a loaded machine
GROWTH_KIB = 96 << 10  # of an agent's own memory, and of its descriptors, while it lives
GROWTH_FDS = 64


class Judge:
    def __init__(self, events):
        self.events = events
        self.world = next((e["settings"]["world"] for e in events if e["event"] == "campaign"), 0)
        self.keep = next((e["settings"]["max_ckpt_num"] for e in events if e["event"] == "campaign"), 3)
        self.broken = []
        self.saves = defaultdict(dict)  # version -> rank -> when it was asked to save it
        self.committed = {}  # version -> when it was first seen to be
        self.published = {}
        self.names = {}  # published directory -> version
        self.spoilt = set()  # published versions that we damaged
        self.destroyed = []  # (when it was done, nodes whose memory is gone or damaged)
        self.restored = defaultdict(dict)  # launch -> rank -> event
        self.restores = []  # (launch, version)
        self.launched = 0.0

    def find(self, what, event, text):
        self.broken.append({"promise": what, "t": event["t"], "text": text})

    def run(self):
        for event in self.events:
            getattr(self, "on_" + event["event"], lambda _event: None)(event)
        self._held()
        self._growth()
        if not any(event["event"] in ("gone", "stuck") for event in self.events):
            self.find("liveness", self.events[-1], "the history has no end")
        return self.broken

    # ---- what trainers tell ---------------------------------------------------------------------------------------

    def on_save(self, event):
        self.saves[event["launch"], event["step"]][event["rank"]] = event["t"]

    def _all_asked(self, version):
        return len(self.saves.get(version, {})) == self.world

    def on_committed(self, event):
        version = event["launch"], event["step"]
        if not self._all_asked(version):
            self.find("intent", event, f"{version} is committed, but {len(self.saves.get(version, {}))} of {self.world} "
                                       "ranks had been asked to save it")
        self.committed.setdefault(version, event["t"])

    def on_published(self, event):
        version = event["launch"], event["step"]
        if version not in self.committed and not self._all_asked(version):
            self.find("intent", event, f"{version} is published, but not every rank was asked to save it")
        self.published.setdefault(version, event["t"])

    def on_restored(self, event):
        launch, version = event["launch"], (event["origin"], event["step"])
        if not event["right"]:
            self.find("content", event, f"rank {event['rank']} of launch {launch} restored wrong bytes of {version}")
            return
        if not self._all_asked(version):
            self.find("intent", event, f"{version} is restored, but not every rank was asked to save it")
        others = {(e["origin"], e["step"], e["term"]) for e in self.restored[launch].values()}
        if others and (event["origin"], event["step"], event["term"]) not in others:
            self.find("agreement", event, f"rank {event['rank']} restored {version}, others {sorted(others)}")
        if not others:
            self._not_lost(event, version)
            self.restores.append((launch, version))
        self.restored[launch][event["rank"]] = event

    def on_fresh(self, event):
        if self.restored[event["launch"]]:
            self.find("agreement", event, f"rank {event['rank']} begins afresh, others have restored")
        bound, why = self._bound(event["t"])
        if bound > (0, 0):
            self.find("lost", event, f"launch {event['launch']} begins afresh, but {bound} is {why}")

    # ---- what must survive ----------------------------------------------------------------------------------------

    def _bound(self, now):
        """The newest version that must be there."""
        best = max(((version, "committed") for version, seen in self.committed.items()
                    if seen <= now and self._covered(version)), default=((0, 0), ""))
        kept = sorted(version for version, seen in self.published.items() if seen <= now)[-self.keep:]
        whole = max(((version, "published") for version in kept if version not in self.spoilt), default=((0, 0), ""))
        restored = max(((version, "restored before") for _, version in self.restores
                        if version in self.committed and self._covered(version)), default=((0, 0), ""))
        return max(best, whole, restored)

    def _covered(self, version):
        """Fewer nodes lost, since its save began, than there are copies."""
        began = min(self.saves[version].values(), default=0)
        nodes = {node for done, names in self.destroyed if done >= began for node in names}
        return len(nodes) < COPIES

    def _not_lost(self, event, version):
        bound, why = self._bound(self.launched)
        if version < bound:
            self.find("lost" if why != "restored before" else "monotonic", event,
                      f"launch {event['launch']} restored {version}, but {bound} is {why}")

    # ---- what the driver tells ------------------------------------------------------------------------------------

    def on_launch(self, event):
        self.launched = event["t"]

    def on_injected(self, event):
        if event["destroys"]:
            self.destroyed.append((event["t"], event["destroys"]))  # it may have taken a while
        if event["kind"] == "published_damaged" and event.get("hit"):
            of_step = {version for version in self.saves if version[1] == event.get("step")}
            self.spoilt |= {self.names[event["hit"]]} if event["hit"] in self.names else of_step

    def on_checked(self, event):
        version = event["origin"], event["step"]
        self.names[event["name"]] = version
        if event["wrong"]:
            self.find("content", event, f"published {event['name']}: {event['wrong']}")
        elif not self._all_asked(version):
            self.find("intent", event, f"published {event['name']} holds {version}, which not all ranks saved")

    def on_trainer_ended(self, event):
        if event["status"] == 3 or event["said"].startswith("WRONG"):
            self.find("content", event, f"rank {event['rank']} of launch {event['launch']}: {event['said']}")

    def on_agent_died(self, event):
        if event["excused"] or UCX_ENDS.search(event["said"]):
            return  # the table tells of those that UCX ended
        if event.get("failing") and (not event["ready"] or UCX_GIVES_UP.search(event["said"])):
            return  # what fails when an agent starts ends it, and its supervisor tries again
        self.find("processes", event, f"the agent of {event['node']} (pid {event['pid']}) died of itself {event['said']}")

    def on_stuck(self, event):
        self.find("liveness", event, f"launch {event['launch']}: no commit for {event['seconds']} s")

    def on_finished(self, event):
        if any(status != 0 for status in event["statuses"]):
            self.find("liveness", event, f"the last launch did not end well: {event['statuses']}")
        if len(self.restored[event["launch"]]) != self.world:
            self.find("liveness", event, "not every rank of the last launch restored")

    def on_gone(self, event):
        if event["left"]:
            self.find("processes", event, f"left at the end: {', '.join(event['left'])}")

    def on_foreign(self, event):
        self.find("scope", event, f"{event['path']}: {event['how']}")

    def on_sanitizer(self, event):
        self.find("processes", event, f"{event['path']}: {event['text']}")

    # ---- bounds ---------------------------------------------------------------------------------------------------

    def _held(self):
        stops = [(event["began"], event["began"] + event["seconds"]) for event in self.events
                 if event["event"] == "injected" and event["kind"] == "trainer_stopped"]
        for event in self.events:
            if event["event"] != "held" or event["ms"] <= BLOCK_MS + LOADED_MS:
                continue
            began = event["t"] - event["ms"] / 1000
            if not any(start < event["t"] and end > began for start, end in stops):
                self.find("held", event, f"rank {event['rank']} was held for {event['ms']:.0f} ms at step {event['step']}")

    def _growth(self):
        samples = defaultdict(list)
        for event in self.events:
            if event["event"] == "sample":
                samples[event["pid"]].append(event)
        for pid, taken in samples.items():
            first, last = taken[min(1, len(taken) - 1)], taken[-1]
            if last["kib"] - first["kib"] > GROWTH_KIB or last["fds"] - first["fds"] > GROWTH_FDS:
                self.find("processes", last, f"the agent of {last['node']} (pid {pid}) grew from {first['kib']} KiB and "
                                             f"{first['fds']} descriptors to {last['kib']} and {last['fds']}")


def judge(events):
    """The broken promises, each with promise, t and text."""
    return Judge(events).run()
