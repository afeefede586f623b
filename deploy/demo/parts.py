# SPDX-License-Identifier: Apache-2.0
"""The parts of the demonstration: what is trained, what fails, and how training continues."""

import dataclasses
import time

STEPS = 50
MEMORY_INTERVAL = 2
STORAGE_INTERVAL = 10
STEPS_MIN = 2 * (STORAGE_INTERVAL + MEMORY_INTERVAL)  # so that part d loses its nodes after a save to storage

CONFIG = {
    "job": "demo",
    "save_mem_interval": MEMORY_INTERVAL,
    "save_storage_interval": 0,
    "heartbeat_ms": 200,
    "peer_timeout_ms": 1000,
    "restore_wait_ms": 1000,
}


def fail_at(steps):
    """The step after which something is lost: past the middle, and between two saves."""
    return (steps // 2 + 1) | 1


@dataclasses.dataclass
class Loss:
    """What was lost, when, and when the survivors' trainers had ended."""

    text: str
    at: float
    newest_step: int
    homes: dict  # rank -> node before the loss
    detected: float | None = None
    notes: list = dataclasses.field(default_factory=list)


def homes(run):
    """The node of each rank."""
    return {event["rank"]: event["node"] for event in run.of("started")}


def describe(names, by_rank):
    """Nodes and the ranks that were there."""
    ranks = sorted(rank for rank, node in by_rank.items() if node in names)
    return f"{' and '.join(names)} (ranks {', '.join(map(str, ranks))})"


def trainers_outside(run, names):
    """Processes of the trainers on all other nodes."""
    return [event["pid"] for event in run.of("started") if event["node"] not in names]


def kill(run, say, names, successors):
    """kill -9 of every process of the nodes at once; fresh nodes come in their place."""
    before, survivors = homes(run), trainers_outside(run, names)
    loss = Loss("", time.time(), 0, before)
    killed = [run.job.nodes[name].kill() for name in names]
    run.give_up(*names)
    loss.newest_step = run.newest_step_now()
    loss.text = f"{describe(names, before)}: {sum(killed)} processes killed, their memory gone"
    say(f"LOSS    {loss.text}")
    run.start(*successors)
    if survivors:
        loss.detected = run.until_ended(survivors)
        say(f"ended   the other trainers, {loss.detected - loss.at:.2f} s after the loss")
    run.until_final()
    return loss


def kill_one(run, say):
    return kill(run, say, ["n2"], ["n3"])


def kill_all(run, say):
    return kill(run, say, ["n1", "n2"], ["n3", "n4"])


def cut_link(run, say):
    """The node runs on but nobody reaches it. Where links cannot be cut, its processes are stopped instead."""
    node, before = run.job.nodes["n2"], homes(run)
    survivors = trainers_outside(run, ["n2"])
    cut, repair, word = run.job.isolate("n2")
    loss = Loss(f"{describe(['n2'], before)}: {word}, nothing killed", time.time(), 0, before)
    cut()
    run.give_up("n2")
    loss.newest_step = run.newest_step_now()
    say(f"LOSS    {loss.text}")
    loss.detected = run.until_ended(survivors)
    say(f"ended   the other trainers, {loss.detected - loss.at:.2f} s after the loss, by their agent")
    run.start("n3")
    run.until_step_after(loss.at)
    repair()
    say("healed  the lost node is back, with a term that is over")
    fenced = run.saw(node, "is over", timeout=20)
    say("fenced  its agent refuses the old term" if fenced else "its agent has not noticed within 20 s")
    verdict = "yes: the agent of n2 gave up its old term when it was reachable again" if fenced else "NO"
    loss.notes.append(f"fenced             {verdict}")
    run.until_final()
    return loss


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    title: str
    mode: str
    fail: object
    config: dict


PARTS = [
    Part("a", "a node is killed; DDP with ZeroRedundancyOptimizer", "ddp_zero", kill_one, {}),
    Part("b", "a node is killed; HSDP (fully_shard on a 2x2 mesh)", "hsdp", kill_one, {}),
    Part("c", "the link of a node is cut; DDP with ZeroRedundancyOptimizer", "ddp_zero", cut_link,
         {"on_node_loss": "end_trainers"}),
    Part("d", "all nodes are lost at once; back from storage", "ddp_zero", kill_all,
         {"save_storage_interval": STORAGE_INTERVAL}),
]  # fmt: skip
