# SPDX-License-Identifier: Apache-2.0
"""Carries out a plan: the launcher of a job that trains all the time, and the faults that hit it."""

import os
import random
import signal
import time

import published
import slots
from cluster import JOB, kill, send

SETTLE_S = 90  # recovery on a loaded machine takes a few seconds; more than this is taken for never
PUMP_S = 0.02
LINE_S = 5.0  # a line that does not come in this time is not waited for
LOOK_S = 0.25  # between two looks at all processes
TRACER_S = 30.0  # for strace to let its process go
EMPTY_S = 5.0  # a node that trains has lost its memory: the launcher restarts the job after this time


# These may cost a node its memory, while its trainers live.
LEAVES_TRAINERS = {"agent_killed", "agents_killed", "supervisor_killed", "agent_then_supervisor", "supervisor_then_agent",
                   "catalog_damaged", "noise_on_ports"}


class Stuck(Exception):
    pass


class Campaign:
    def __init__(self, cluster, history, faults, say):
        self.cluster, self.history, self.faults, self.say = cluster, history, faults, say
        self.launch, self.trainers, self.homes = 0, [], []
        self.disturbed = time.monotonic()  # after this a commit must come of a save that was begun after it
        self.first_save, self.settled_at = {}, 0.0
        self.newest_step, self.committed, self.published = 0, (0, 0), []
        self.damaged = set()  # names of published versions that we damaged
        self.checked = set()
        self.heals = []  # (when, what)
        self.killed = set()  # pids of agents and supervisors that we killed
        self.failing = set()  # pids of agents some of whose system calls failed
        self.agents, self.looked = {}, 0.0
        self.empty = {}  # node name -> since when it has neither agent nor supervisor
        self.reparked = {}  # node name -> number of "the new supervisor has every descriptor" to wait for after its supervisor died
        self.frozen = False
        self.excused = 0.0  # until then an agent may die of bytes changed on the wire

    # ---- the launcher ---------------------------------------------------------------------------------------------

    def start(self, *arguments):
        self.launch += 1
        world, nodes = self.cluster.settings["world"], self.cluster.nodes
        self.homes = [nodes[rank * len(nodes) // world] for rank in range(world)]
        if self.launch % 3 == 0:  # nothing may go by rank
            random.Random(self.launch).shuffle(self.homes)
        self.history.add("launch", launch=self.launch, homes=[node.name for node in self.homes])
        self.trainers = [self.cluster.start_trainer(node, rank, self.launch, arguments)
                         for rank, node in enumerate(self.homes)]
        self.disturbed = time.monotonic()

    def end_trainers(self):
        kill([trainer.pid for trainer in self.trainers])
        for trainer in self.trainers:
            trainer.wait()

    def relaunch(self):
        self.end_trainers()
        self.start("--steps", str(1 << 40))

    def _watch_trainers(self):
        ended = [(rank, t.returncode) for rank, t in enumerate(self.trainers) if t.poll() is not None]
        if not ended:
            return
        for rank, status in ended:
            self.history.add("trainer_ended", launch=self.launch, rank=rank, status=status, said=self._last_line(rank))
        self.sleep_raw(0.1)
        self.relaunch()

    def _last_line(self, rank):
        lines = (self.cluster.work / f"out.{self.launch}.{rank}").read_text(encoding="utf-8", errors="replace")
        said = [line for line in lines.splitlines() if line.startswith(("ERROR", "WRONG"))]
        return said[-1] if said else ""

    # ---- looking --------------------------------------------------------------------------------------------------

    def sleep_raw(self, seconds):
        time.sleep(seconds)

    def pump(self, relaunch=True):
        """Everything that goes on while the driver waits."""
        for due in [heal for heal in self.heals if heal[0] <= time.monotonic()]:
            self.heals.remove(due)
            due[1]()
            self.disturbed = time.monotonic()
        self._read_history()
        if time.monotonic() - self.looked > LOOK_S:
            self._look()
        if relaunch:
            self._watch_trainers()
        time.sleep(PUMP_S)

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.pump()

    def _read_history(self):
        for event in self.history.new():
            kind, launch, step = event["event"], event.get("launch"), event.get("step", 0)
            if kind == "save":
                if launch == self.launch:
                    self.newest_step = step
                self.first_save.setdefault((launch, step), event["t"])
            elif kind == "committed" and launch == self.launch:
                self.committed = max(self.committed, (launch, step))
                self.settled_at = max(self.settled_at, self.first_save.get((launch, step), 0.0))
            elif kind == "published" and (launch, step) not in self.published:
                self.published.append((launch, step))

    def _look(self):
        """An agent that is another one than before although nobody killed it has died by itself."""
        self.looked = time.monotonic()
        processes = self.cluster.processes(forked=False)
        now = {node: pid for kind, node, pid in processes if kind == "agent"}
        for node, pid in now.items():
            before = self.agents.get(node)
            if before not in (None, pid) and before not in self.killed:
                excused = time.monotonic() < self.excused
                said = self._last_words(node)
                self.history.add("agent_died", node=node, pid=before, excused=excused, said=said,
                                 failing=before in self.failing, ready=self._was_ready(node, before))
                self.say(f"     the agent of {node} died of itself: {said}" + (" (noise on its wire)" if excused else ""))
            self.agents[node] = pid
        self._look_for_empty({node for kind, node, _ in processes if kind != "trainer"})

    def _last_words(self, node):
        """What a library printed when it ended the agent."""
        path = self.cluster.work / "run" / JOB / node / "supervisor.log"
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-12:] if path.exists() else []
        return ([line for line in lines if "Assertion" in line or "Fatal: " in line] or [""])[-1]

    def _was_ready(self, name, pid):
        path = self.cluster.work / "run" / JOB / name / "agent.log"
        return path.exists() and f"(pid {pid})" in path.read_text(encoding="utf-8", errors="replace")

    def _look_for_empty(self, kept):
        """Agent and supervisor died at the same time. What the node had is gone, and nobody but the launcher brings an agent
        back."""
        now = time.monotonic()
        self.empty = {node.name: self.empty.get(node.name, now) for node in self.homes if node.name not in kept}
        if any(now - since > EMPTY_S for since in self.empty.values()):
            self._give_up_launch(self.launch, sorted(self.empty))

    def _give_up_launch(self, launch, nodes):
        if launch == self.launch:
            self.history.add("empty", nodes=nodes, launch=launch)
            self.empty = {}
            kill([trainer.pid for trainer in self.trainers])

    def is_settled(self):
        return not self.heals and self.settled_at > self.disturbed

    def settle(self):
        began, end = time.monotonic(), time.monotonic() + SETTLE_S
        while not self.is_settled():
            if self.heals:
                end = time.monotonic() + SETTLE_S
            if time.monotonic() > end:
                self.history.add("stuck", launch=self.launch, seconds=SETTLE_S)
                raise Stuck(f"no commit for {SETTLE_S} s")
            self.pump()
        self.history.add("settled", launch=self.launch, seconds=round(time.monotonic() - began, 3))
        self._sample()
        self._check_published()

    def _sample(self):
        for kind, node, pid in self.cluster.processes(forked=False):
            if kind != "agent":
                continue
            try:
                with open(f"/proc/{pid}/status", encoding="utf-8") as file:
                    status = dict(line.split(":", 1) for line in file)
                self.history.add("sample", node=node, pid=pid, kib=int(status["RssAnon"].split()[0]),
                                 threads=int(status["Threads"]), fds=len(os.listdir(f"/proc/{pid}/fd")))
            except (FileNotFoundError, ProcessLookupError, KeyError):
                pass

    def _check_published(self, most=2):
        """The newest that nobody has read yet."""
        s = self.cluster.settings
        versions = [version for version in published.versions(self.cluster.save_dir / JOB)
                    if version[2].name not in self.checked | self.damaged]
        for step, term, path in versions[-most:]:
            try:
                launch, wrong = published.check(path, step, s["world"], s["twins"])
            except (OSError, ValueError, KeyError) as error:
                if not path.exists():
                    continue  # pruned meanwhile
                launch, wrong = 0, f"{type(error).__name__}: {error}"
            self.checked.add(path.name)
            self._read_history()
            self.history.add("checked", name=path.name, term=term, step=step, origin=launch, wrong=wrong)

    def intact(self):
        """Published versions that nobody has damaged, newest last."""
        return [v for v in published.versions(self.cluster.save_dir / JOB)
                if v[2].name not in self.damaged and (v[2] / "manifest.json").exists()]

    # ---- the campaign ---------------------------------------------------------------------------------------------

    def run(self):
        self.history.add("campaign", settings=self.cluster.settings, missing=self.cluster.missing)
        self.start("--steps", str(1 << 40))
        self._until(lambda: self.intact(), "nothing is published")
        self.settle()
        for fault in self.faults:
            self._until_due(fault)
            self.inject(fault)
        self.settle()
        self._end()

    def _until_due(self, fault):
        if fault["timing"] == "settled":
            self.settle()
        elif fault["timing"] == "line" and fault["number"] > 1:
            self.settle()
            self._until_line(*fault["line"], fault)
        else:
            self.wait(fault["delay_s"])

    def _until_line(self, text, after, fault):
        """An agent logs it, after what it takes has been killed. Looked for so often that the fault hits what follows."""
        seen = {node.name: len(self.cluster.log(node)) for node in self.cluster.nodes}
        kinds = {"trainers": "trainers_killed", "agent": "agent_killed", "node": "node_lost"}
        if after:
            nodes = fault["nodes"][::-1]  # another node than the one that the fault itself hits
            self.inject({**fault, "kind": kinds[after], "nodes": nodes, "timing": f"until '{text}'"})
        if after in ("trainers", "node"):
            self.relaunch()
        end = time.monotonic() + LINE_S
        while time.monotonic() < end:
            if any(text in self.cluster.log(node, past=seen.get(node.name, 0)) for node in self.cluster.nodes):
                return
            time.sleep(0.002)

    def _until(self, condition, what):
        end = time.monotonic() + SETTLE_S
        while not condition():
            if time.monotonic() > end:
                self.history.add("stuck", launch=self.launch, seconds=SETTLE_S)
                raise Stuck(what)
            self.pump()

    def _end(self):
        """A last start, which ends by itself; then nothing may be left."""
        self._read_history()
        self.end_trainers()
        self.start("--steps", str(self.newest_step + 12), "--done")
        end = time.monotonic() + SETTLE_S
        while any(trainer.poll() is None for trainer in self.trainers) and time.monotonic() < end:
            self.pump(relaunch=False)
        self.history.add("finished", launch=self.launch, statuses=[trainer.poll() for trainer in self.trainers])
        end = time.monotonic() + SETTLE_S
        while (left := self.cluster.processes()) and time.monotonic() < end:
            time.sleep(0.1)
        self.history.add("gone", left=[f"{kind} {node}" for kind, node, _ in left])
        self._check_published(most=100)

    def inject(self, fault):
        act = getattr(self, "_" + fault["kind"])
        why = self._missing_for(fault["kind"])
        if why:
            self.history.add("skipped_fault", number=fault["number"], kind=fault["kind"], why=why)
            return
        if self._destroys(fault) and not self.intact():
            self._until(lambda: self.intact(), "nothing intact is published")  # more than memory promises is lost
        self.say(f"{fault['number']:4} {fault['kind']:18} {fault['timing']}" +
                 (f" '{fault['line'][0]}'" if fault["timing"] == "line" else ""))
        self.history.add("fault", number=fault["number"], kind=fault["kind"], timing=fault["timing"])
        before = time.monotonic()
        result = act(fault) or {}
        self.disturbed = time.monotonic()
        self.history.add("injected", number=fault["number"], kind=fault["kind"], began=round(before, 6),
                         **{"destroys": [], **result})
        if fault["kind"] in LEAVES_TRAINERS and result.get("destroys"):
            self._watch_job(result["destroys"])

    def _watch_job(self, nodes):
        """Agents that only report leave it to the launcher to restart the job when a node's memory is gone."""
        launch = self.launch
        if self.cluster.settings["on_node_loss"] == "report":
            self.heal(EMPTY_S, lambda: self._give_up_launch(launch, nodes))

    def _missing_for(self, kind):
        needs = {"link_cut": "network", "link_flaps": "network", "node_left_behind": "network", "one_way": "iptables",
                 "slow_link": "tbf", "noisy_link": "tun", "disk_full": "disk", "storage_hangs": "freeze", "calls_fail": "strace"}
        if kind in ("slot_damaged", "calls_fail") and os.geteuid() != 0:
            return "needs root"
        return self.cluster.missing.get(needs.get(kind))

    def _destroys(self, fault):
        return "lost" in fault["kind"] or "left" in fault["kind"] or "supervisor" in fault["kind"]

    def node(self, fault, which=0):
        return self.cluster.nodes[fault["nodes"][which]]

    def heal(self, seconds, what):
        self.heals.append((time.monotonic() + seconds, what))

    def ranks_of(self, node):
        return [rank for rank, home in enumerate(self.homes) if home is node]

    # ---- faults: processes ----------------------------------------------------------------------------------------

    def _trainer_killed(self, fault):
        rank = fault["rank"] % len(self.trainers)
        kill([self.trainers[rank].pid])
        return {"rank": rank}

    def _trainers_killed(self, _fault):
        kill([trainer.pid for trainer in self.trainers])

    def _trainer_stopped(self, fault):
        rank = fault["rank"] % len(self.trainers)
        pid = self.trainers[rank].pid
        self._stop(pid, fault["seconds"])
        return {"rank": rank, "seconds": fault["seconds"]}

    def _stop(self, pid, seconds):
        send(pid, signal.SIGSTOP)
        self.heal(seconds, lambda: send(pid, signal.SIGCONT))

    def _kill_agent(self, node):
        """Whether its memory goes with it: nobody else has it while a new supervisor has not got it yet."""
        pid = self.cluster.pid("agent", node)
        destroyed = self._is_unparked(node)
        if pid is not None:
            self.killed.add(pid)
            kill([pid])
        return [node.name] if destroyed else []

    def _is_unparked(self, node):
        wanted = self.reparked.get(node.name)
        if wanted is not None and self._parked_count(node) >= wanted and self.cluster.pid("supervisor", node):
            del self.reparked[node.name]
            return False
        return wanted is not None

    def _parked_count(self, node):
        return self.cluster.log(node).count("the new supervisor has every descriptor")

    def _kill_supervisor(self, node):
        """Whether memory goes with it: an agent that is just being started again has got nothing yet."""
        pid, agent = self.cluster.pid("supervisor", node), self.cluster.pid("agent", node)
        destroyed = agent is None or f"(pid {agent})" not in self.cluster.log(node) or self._is_unparked(node)
        if pid is not None:
            self.reparked[node.name] = self._parked_count(node) + 1
            self.killed.add(pid)
            kill([pid])
        return [node.name] if destroyed else []

    def _agent_killed(self, fault):
        node = self.node(fault)
        return {"nodes": [node.name], "destroys": self._kill_agent(node)}

    def _agents_killed(self, _fault):
        destroyed = [name for node in self.cluster.nodes for name in self._kill_agent(node)]
        return {"nodes": [node.name for node in self.cluster.nodes], "destroys": destroyed}

    def _supervisor_killed(self, fault):
        node = self.node(fault)
        return {"nodes": [node.name], "destroys": self._kill_supervisor(node)}

    def _agent_then_supervisor(self, fault):
        node = self.node(fault)
        destroyed = self._kill_agent(node)
        self.wait(fault["gap_s"])
        destroyed += self._kill_supervisor(node)
        return {"nodes": [node.name], "destroys": destroyed}

    def _supervisor_then_agent(self, fault):
        node = self.node(fault)
        destroyed = self._kill_supervisor(node)
        self.wait(fault["gap_s"])
        destroyed += self._kill_agent(node)
        return {"nodes": [node.name], "destroys": destroyed}

    def _agent_stopped(self, fault):
        node = self.node(fault)
        pid = self.cluster.pid("agent", node)
        if pid is not None:
            self._stop(pid, fault["seconds"])
        return {"nodes": [node.name], "seconds": fault["seconds"]}

    def _supervisor_stopped(self, fault):
        node = self.node(fault)
        pid = self.cluster.pid("supervisor", node)
        if pid is not None:
            self._stop(pid, 2 * fault["seconds"])
        return {"nodes": [node.name], "seconds": 2 * fault["seconds"]}

    def _catalog_damaged(self, fault):
        node = self.node(fault)
        supervisor = self.cluster.pid("supervisor", node)
        if supervisor is not None:
            send(supervisor, signal.SIGSTOP)  # it would start the agent again before the damage is done
        destroyed = self._kill_agent(node)
        rng = random.Random(fault["how"])
        for path in sorted((self.cluster.home(node) / "catalog").glob("*")):
            if path.name.startswith(("MANIFEST", "CURRENT")) or path.suffix in (".log", ".sst"):
                path.write_bytes(rng.randbytes(4096))
        if supervisor is not None:
            send(supervisor, signal.SIGCONT)
        return {"nodes": [node.name], "destroys": destroyed}

    # ---- faults: nodes --------------------------------------------------------------------------------------------

    def _lose(self, nodes, how):
        """All at once and with everything on them. Silently: no connection ends, packets just stop."""
        names = {node.name for node in nodes}
        if how % 2 and "network" not in self.cluster.missing:
            for node in nodes:
                self.cluster.set_link(node, False)
        kill([self.trainers[rank].pid for node in nodes for rank in self.ranks_of(node)])
        for _ in range(20):  # what was just being started is not among those found first
            pids = [pid for _, name, pid in self.cluster.processes() if name in names]
            self.killed.update(pids)
            kill(pids)
            if not pids:
                break
            self.sleep_raw(0.01)
        for trainer in self.trainers:  # reap those that died, so that they do not count as there
            trainer.poll()
        for node in nodes:
            self._replace(node, how // 2)

    def _replace(self, node, how):
        """By a fresh one, or the same comes back, with its files or without."""
        self.reparked.pop(node.name, None)
        self.agents.pop(node.name, None)
        position = self.cluster.nodes.index(node)
        if how % 3 == 0:
            self.cluster.nodes[position] = self.cluster.new_node()
            return
        if "network" not in self.cluster.missing:
            self.cluster.set_link(node, True)
        end = time.monotonic() + 30
        while self.cluster.pid("agent", node) is not None and time.monotonic() < end:
            self.sleep_raw(0.02)  # one that writes to a frozen file system dies when that is thawed
            for due in [heal for heal in self.heals if heal[0] <= time.monotonic()]:
                self.heals.remove(due)
                due[1]()
        self.cluster.forget(node, keep_files=how % 3 == 1)

    def _node_lost(self, fault):
        node = self.node(fault)
        self._lose([node], fault["how"])
        return {"nodes": [node.name], "destroys": [node.name]}

    def _two_nodes_lost(self, fault):
        nodes = [self.node(fault, 0), self.node(fault, 1)]
        self._lose(nodes, fault["how"])
        return {"nodes": [node.name for node in nodes], "destroys": [node.name for node in nodes]}

    def _all_nodes_lost(self, fault):
        nodes = list(self.cluster.nodes)
        self._lose(nodes, fault["how"])
        return {"nodes": [node.name for node in nodes], "destroys": [node.name for node in nodes]}

    def _node_left_behind(self, fault):
        """Cut off with its trainers alive; the job goes on without it, and it comes back in the middle of that."""
        node = self.node(fault)
        self.cluster.set_link(node, False)
        stale = [self.trainers[rank] for rank in self.ranks_of(node)]
        self.cluster.nodes[self.cluster.nodes.index(node)] = self.cluster.new_node()
        self.trainers = [trainer for trainer in self.trainers if trainer not in stale]
        self.relaunch()

        def back():
            self.cluster.set_link(node, True)
            self.heal(2.0, gone)

        def gone():
            pids = [pid for _, name, pid in self.cluster.processes() if name == node.name]
            self.killed.update(pids)
            kill(pids + [trainer.pid for trainer in stale])
            for trainer in stale:
                trainer.wait()

        self.heal(2.0 + fault["seconds"], back)
        return {"nodes": [node.name], "destroys": [node.name]}

    # ---- faults: network ------------------------------------------------------------------------------------------

    def _link_cut(self, fault):
        node = self.node(fault)
        self.cluster.set_link(node, False)
        self.heal(fault["seconds"], lambda: self.cluster.set_link(node, True))
        return {"nodes": [node.name], "seconds": fault["seconds"]}

    def _one_way(self, fault):
        node, chain = self.node(fault), ("INPUT", "OUTPUT")[fault["how"] % 2]
        self.cluster.set_deaf(node, chain, True)
        self.heal(fault["seconds"], lambda: self.cluster.set_deaf(node, chain, False))
        return {"nodes": [node.name], "seconds": fault["seconds"], "how": chain}

    def _link_flaps(self, fault):
        node = self.node(fault)
        for _ in range(3 + fault["how"] % 4):
            self.cluster.set_link(node, False)
            self.wait(fault["seconds"] / 4)
            self.cluster.set_link(node, True)
            self.wait(fault["seconds"] / 4)
        return {"nodes": [node.name]}

    def _slow_link(self, fault):
        node = self.node(fault)
        self.cluster.set_slow(node, True)
        self.heal(2 * fault["seconds"], lambda: self.cluster.set_slow(node, False))
        return {"nodes": [node.name], "seconds": 2 * fault["seconds"]}

    def _noisy_link(self, fault):
        """What TCP sees and repairs, and bits changed behind its back: these may end an agent in UCX, and its supervisor starts
        it again."""
        node, rng = self.node(fault), random.Random(fault["how"])
        knobs = [rng.choice((0, most // 4, most)) for most in (5000, 5000, 10000, 4, 10)]
        if knobs[3]:
            self.excused = time.monotonic() + 2 * fault["seconds"] + 5
        self.cluster.set_noisy(node, [*knobs, fault["how"]])
        self.heal(2 * fault["seconds"], lambda: self.cluster.set_noisy(node, [0, 0, 0, 0, 0, 1]))
        return {"nodes": [node.name], "seconds": 2 * fault["seconds"], "how": knobs}

    def _noise_on_ports(self, fault):
        """Bytes from strangers. UCX may end its process over them; then the supervisor starts the agent again."""
        node = self.node(fault)
        line = [text for text in self.cluster.log(node).splitlines() if " is ready at " in text][-1:]
        pid = self.cluster.pid("agent", node)
        if not line or pid is None:
            return {"nodes": [node.name], "how": "no port"}
        host, port = line[0].split(" is ready at ")[1].split(" ")[0].rsplit(":", 1)
        self.killed.add(pid)
        self.cluster.send_noise(node, host, port, fault["how"])
        return {"nodes": [node.name], "destroys": [node.name] if self._is_unparked(node) else []}

    # ---- faults: bytes and storage --------------------------------------------------------------------------------

    def _slot_damaged(self, fault):
        node = self.node(fault)
        hit = None
        for attempt in range(10):  # what was about to be hit may have been used again
            pid = self.cluster.pid("agent", node)
            try:
                hit = hit or (slots.damage(pid, fault["how"] + attempt) if pid is not None else None)
            except OSError:
                pass  # the agent has just ended
        return {"nodes": [node.name], "destroys": [node.name] if hit else [], "hit": hit}

    def _set_frozen(self, frozen):
        self.cluster.set_frozen(frozen)
        self.frozen = frozen

    def _thawed(self):
        """Whoever writes to a frozen file system waits, the driver too."""
        while self.frozen:
            self.pump()

    def _published_damaged(self, fault):
        self._thawed()
        whole = self.intact()
        if not whole:
            return {"hit": None}
        step, term, path = whole[-1]
        self.damaged.add(path.name)
        try:
            how = published.damage(path, fault["how"])
        except OSError:
            return {"hit": path.name, "how": "pruned meanwhile"}
        return {"hit": path.name, "how": how, "term": term, "step": step}

    def _disk_full(self, fault):
        self._thawed()
        self.cluster.set_full(True)

        def room():
            self._thawed()
            self.cluster.set_full(False)

        self.heal(fault["seconds"], room)
        return {"seconds": fault["seconds"]}

    def _calls_fail(self, fault):
        """System calls of an agent that fail, one or several in a row."""
        node, rng = self.node(fault), random.Random(fault["how"])
        pid = self.cluster.pid("agent", node)
        what = rng.choice((("fsync,fdatasync", "EIO"), ("fsync,fdatasync", "ENOSPC"), ("renameat2,renameat,rename", "EIO"),
                           ("openat,openat2", "EMFILE"), ("openat,openat2", "EIO"), ("mkdirat", "ENOSPC"),
                           ("unlinkat", "EIO"), ("fallocate", "ENOSPC"), ("io_uring_enter", "EAGAIN")))
        if pid is not None:
            self.failing.add(pid)
            tracer = self.cluster.fail_calls(pid, *what, rng.choice((1, 2, 5)), rng.choice((1, 3)))
            self.heal(fault["seconds"], lambda: self._end_tracer(tracer, time.monotonic() + TRACER_S))
        return {"nodes": [node.name], "how": what, "seconds": fault["seconds"]}

    def _end_tracer(self, tracer, deadline):
        """It ends when all threads of the agent have stopped, which one that hangs in storage does once that is thawed;
        or never, if the agent is killed just then."""
        if tracer.poll() is None:
            if time.monotonic() < deadline:
                tracer.terminate()
            else:
                tracer.kill()
            self.heal(0.1, lambda: self._end_tracer(tracer, deadline))

    def _storage_hangs(self, fault):
        self._set_frozen(True)
        self.heal(fault["seconds"], lambda: self._set_frozen(False))
        return {"seconds": fault["seconds"]}
