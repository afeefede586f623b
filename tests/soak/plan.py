# SPDX-License-Identifier: Apache-2.0
"""The plan of a campaign: which faults hit what, and when. The seed alone makes it, so a seed is a case.

Nodes are numbered by position (0 to NODES - 1); a node that is replaced leaves its position to the new one.
"""

import random

NODES = 4

# How often each kind comes in every bag of faults.
KINDS = {
    "trainer_killed": 2,
    "trainers_killed": 2,
    "agent_killed": 3,
    "agents_killed": 2,
    "supervisor_killed": 2,
    "agent_then_supervisor": 1,
    "supervisor_then_agent": 1,
    "node_lost": 4,
    "two_nodes_lost": 1,
    "all_nodes_lost": 1,
    "node_left_behind": 1,  # cut off, replaced, and back again with its trainers
    "agent_stopped": 2,
    "trainer_stopped": 1,
    "supervisor_stopped": 1,
    "link_cut": 2,
    "one_way": 2,
    "link_flaps": 1,
    "slow_link": 1,
    "noisy_link": 2,  # loss, doubling, reordering, delay, corruption
    "slot_damaged": 2,
    "published_damaged": 1,
    "catalog_damaged": 1,
    "disk_full": 1,
    "storage_hangs": 1,
    "calls_fail": 2,  # system calls of an agent
    "noise_on_ports": 1,
}
# When: after commits have gone on since the fault before; right after that; in the middle of what it has set off; or at
# the moment when an agent logs a line of LINES.
TIMINGS = (("settled", 50), ("close", 15), ("recovering", 15), ("line", 20))
# What an agent logs, and what has to be killed for it to come ("": nothing, it comes all the time).
LINES = (
    ("is protected", ""), ("is committed", ""), ("draining version", ""), ("is published", ""),
    ("claimed term", "trainers"), ("joined term", "trainers"), ("recovery of term", "trainers"),
    ("can be read by all ranks", "trainers"), ("has all its copies again", "trainers"), (" was fetched from ", "node"),
    ("has all its copies again", "node"), ("resuming term", "agent"), ("adopted segment", "agent"), ("is up at", "agent"),
)


def settings(seed):
    """The shape of the job."""
    rng = random.Random(f"settings {seed}")
    interval = rng.choice((1, 2, 3))
    # As much as the nodes' cables, which are processes, can carry beside the faults: large shards are saved less often.
    elements, step_ms = rng.choice(((1 << 13, 10), (1 << 13, 40), (1 << 15, 20), (1 << 17, 40), (1 << 19, 160)))
    return {
        "nodes": NODES,
        "world": NODES * rng.choice((1, 2)),
        "twins": rng.choice((1, 2, 4)),
        "elements": elements,
        "step_ms": step_ms,
        "save_mem_interval": interval,
        "save_storage_interval": interval * rng.choice((3, 5, 10)),
        "slots": rng.choice((2, 3, 3)),
        "max_ckpt_num": 3,
        "copies": 2,
        "on_node_loss": rng.choice(("report", "end_trainers")),
    }


def plan(seed, count):
    """The faults: number, kind, when, and every chance that injecting them needs."""
    rng = random.Random(f"plan {seed}")
    bag, faults = [], []
    for number in range(1, count + 1):
        if not bag:
            bag = [kind for kind, times in KINDS.items() for _ in range(times)]
            rng.shuffle(bag)
        timing = rng.choices([name for name, _ in TIMINGS], [weight for _, weight in TIMINGS])[0]
        faults.append({
            "number": number,
            "kind": bag.pop(),
            "timing": "settled" if number == 1 else timing,
            "delay_s": round(rng.uniform(0, 0.3 if timing == "close" else rng.choice((0.3, 0.6, 1.5))), 3),
            "nodes": rng.sample(range(NODES), NODES),  # the first, or the first two, are meant
            "rank": rng.randrange(1 << 16),
            "seconds": round(rng.choice((0.3, 1.0, 2.0, 4.0)) * rng.uniform(0.5, 1.0), 3),
            "gap_s": round(rng.uniform(0.5, 1.5), 3),
            "how": rng.randrange(1 << 16),
            "line": rng.choice(LINES) if timing == "line" else None,
        })
    return faults
