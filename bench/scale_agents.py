#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SCALE: what a job of 16, 256 and (--large) 16,384 ranks costs the coordinator's agent and the other agents, phase by
phase, beside the goals for 16,384 ranks; what a restore of 16 to 1,024 shards asks of storage; and how long one of a
shard that all ranks have takes by how many levels the tree has along which it passes. The agents are the real ones, all
in one process, over a simulated network and storage (tests/sim), so messages and bytes are exact, and processor time is
that of their own code. Images are tiny: copying is measured elsewhere."""

import argparse
import json
import os
import statistics
import subprocess
import sys

RANKS_PER_NODE = 8
LEAST, MORE, LARGE = 16, 256, 16384
RESTORED = (16, 64, 256, 1024)  # shards, one for each rank
UNTIL_LOSS, AFTER_LOSS = ("attach", "register", "version", "drain"), ("loss", "restore_memory")
SHARD_BYTES = 16 << 20  # assumed for what is read beside the shards themselves
TREE_LEVELS = (1, 3)
TREE_MIB, TREE_CHUNK_MS = 128, 50  # the shard; how long a chunk of it occupies a connection
PHASES = {
    "attach": "attach",
    "register": "register, and restore nothing",
    "version": "one version, from the save to the commit",
    "drain": "its drain, from the request to the publish",
    "loss": "a lost node, and attach and register again",
    "restore_memory": "restore from memory, until all copies are back",
    "restore_storage": "restore from storage, until all copies are back",
}


def simulate(nodes, *options):
    """The costs of each phase of one run."""
    program = os.path.join(os.environ["TIERCKPT_BUILD_DIR"], "tests/sim/sim")
    command = [program, "--scale", str(nodes), *map(str, options), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    phases = {row["phase"]: row for row in rows if "phase" in row}
    if done.returncode != 0 or not PHASES.keys() <= phases.keys():
        raise RuntimeError(f"{' '.join(command)}: {(done.stdout.splitlines() or ['no output'])[-1]}")
    return phases


def measure(ranks):
    return simulate(ranks // RANKS_PER_NODE, "--ranks", RANKS_PER_NODE)


def spread(samples):
    if len(samples) < 2:
        return 0.0
    low, middle, high = statistics.quantiles(samples, n=4)
    return (high - low) / middle if middle else 0.0


def row(phase, ranks, who, runs):
    """Processor time beside that at 16 ranks; of what does not vary between runs, the last run's."""
    ms = {n: [run[phase][who]["ms"] for run in runs[n]] for n in (LEAST, ranks)}
    least = statistics.median(ms[LEAST])
    here = runs[ranks][-1][phase][who]
    ratios = [x / y for x, y in zip(ms[ranks], ms[LEAST]) if y > 0]
    name = "coordinator's agent" if who == "coordinator" else "another agent"
    what = (f"{PHASES[phase]}: {name}, {statistics.median(ms[ranks]):.3g} ms, {here['sent']:g} messages of "
            f"{here['bytes'] / 1000:.3g} kB sent, {here['received']:g} received, {here['heap_kib'] / 1024:.3g} MiB")
    return {"id": f"SCALE.{phase}.{ranks}.{who}", "what": what, "value": statistics.median(ms[ranks]) / least,
            "unit": "x the processor time", "better": "less", "rounds": len(runs[ranks]), "spread": spread(ratios),
            "reference": f"the same at {LEAST} ranks", "reference_value": least, "reference_unit": "ms",
            "cost": here}


def restore_rows(ranks, phase, least):
    """What all nodes together ask of storage in a restore: exact, so from one run. The second row counts what is read
    beside the shards: listings, notes of terms, and the manifest, which each node reads."""
    others = ranks // RANKS_PER_NODE - 1

    def all_nodes(what):
        return phase["coordinator"][what] + others * phase["node"][what]

    lookups = all_nodes("lookups") / ranks
    beside = (all_nodes("read_bytes") - all_nodes("stored_bytes")) / ranks
    each_more = (lookups * ranks - least * LEAST) / (ranks - LEAST) if ranks > LEAST else lookups
    yield {"id": f"SCALE.restore.{ranks}.lookups", "value": lookups, "unit": "calls per shard", "goal": 4,
           "met": lookups <= 4, "better": "less", "rounds": 1, "spread": 0.0,
           "what": f"names and listings that a restore of {ranks} shards asks storage for; each shard more: "
                   f"{each_more:.2f}",
           "reference": f"the same of {LEAST} shards", "reference_value": least, "reference_unit": "calls per shard"}
    ratio = 1 + beside / SHARD_BYTES
    yield {"id": f"SCALE.restore.{ranks}.bytes", "value": ratio, "unit": "x the bytes needed", "goal": 1.1,
           "met": ratio <= 1.1, "better": "less", "rounds": 1, "spread": 0.0,
           "what": f"bytes that a restore of {ranks} shards of {SHARD_BYTES >> 20} MiB reads; {beside / 1000:.3g} kB "
                   "beside each shard",
           "reference": "the shards themselves", "reference_value": SHARD_BYTES / 1e6, "reference_unit": "MB"}


def print_restores(runs):
    phases = {n: (runs[n][-1] if n in runs else measure(n))["restore_storage"] for n in RESTORED}
    least = next(restore_rows(LEAST, phases[LEAST], 0))["value"]
    for ranks in RESTORED:
        for made in restore_rows(ranks, phases[ranks], least):
            print(json.dumps(made), flush=True)


def goal_row(name, what, value, unit, goal, reference):
    """`value` and `reference`: samples of this world and of the one of 16 ranks."""
    middle = statistics.median(value)
    return {"id": name, "what": what, "value": middle, "unit": unit, "goal": goal, "met": middle <= goal,
            "better": "less", "rounds": len(value), "spread": spread(value), "reference": f"the same at {LEAST} ranks",
            "reference_value": statistics.median(reference), "reference_unit": unit}


# What is wanted of 16,384 ranks, and of every smaller world: name, what, unit, goal, and the value of one run.
GOALS = (
    ("core", "the coordinator's agent at one version a second, from the save to the commit", "% of a core", 5,
     lambda run, ranks: run["version"]["coordinator"]["ms"] / 10),
    ("connections", "connections of the coordinator's agent until a node is lost, at most", "connections", 150,
     lambda run, ranks: max(run[phase]["coordinator"]["endpoints"] for phase in UNTIL_LOSS)),
    ("messages", "what the coordinator's agent sends and receives about one version", "B per rank", 100,
     lambda run, ranks: both_ways(run["version"]["coordinator"]) / ranks),
    ("lost", "the coordinator's agent, from the loss of a node until all copies are back", "ms", 1000,
     lambda run, ranks: sum(run[phase]["coordinator"]["ms"] for phase in AFTER_LOSS)),
    ("asked", "what the coordinator's agent receives in this recovery, inventories among it", "MB", 5,
     lambda run, ranks: run["restore_memory"]["coordinator"]["received_bytes"] / 1e6),
    ("flat", "messages that another agent sends and receives about one version, beside those at 16 ranks", "x", 1.1,
     lambda run, ranks: run["version"]["node"]["sent"] + run["version"]["node"]["received"]),
)


def both_ways(cost):
    return cost["bytes"] + cost["received_bytes"]


def goal_rows(ranks, runs):
    for name, what, unit, goal, value_of in GOALS:
        value = [value_of(run, ranks) for run in runs[ranks]]
        reference = [value_of(run, LEAST) for run in runs[LEAST]]
        if unit == "x":
            least = statistics.median(reference)
            value, reference = [v / least for v in value], [v / least for v in reference]
        yield goal_row(f"SCALE.{name}.{ranks}", what, value, unit, goal, reference)


def print_trees():
    """The simulated time, which is exact. A tree of n levels has 2^(n+1) - 1 nodes."""
    options = ("--ranks", 1, "--twin-mib", TREE_MIB, "--chunk-ms", TREE_CHUNK_MS)
    seconds = {n: simulate(2 ** (n + 1) - 1, *options)["restore_storage"]["world_ms"] / 1000 for n in TREE_LEVELS}
    one = seconds[TREE_LEVELS[0]]
    for levels in TREE_LEVELS[1:]:
        ratio = seconds[levels] / one
        print(json.dumps({
            "id": f"SCALE.tree.{levels}", "value": ratio, "unit": "x the time of one level", "goal": 1.3,
            "met": ratio <= 1.3, "better": "less", "rounds": 1, "spread": 0.0,
            "what": f"restore of one shard of {TREE_MIB} MiB from storage to {2 ** (levels + 1) - 1} nodes along a tree of "
                    f"{levels} levels, {seconds[levels]:.2f} s; a chunk takes {TREE_CHUNK_MS} ms",
            "reference": "the same to 3 nodes, one level", "reference_value": one, "reference_unit": "s"}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--dir", help="not used: there is no storage")
    parser.add_argument("--large", action="store_true", help=f"{LARGE:,} ranks, too")
    parser.add_argument("id", nargs="*")
    args = parser.parse_args()
    runs = {LEAST: [], MORE: []}
    try:
        for i in range(args.rounds):
            for ranks in sorted(runs, reverse=i % 2 == 1):
                runs[ranks].append(measure(ranks))
        if args.large:
            runs[LARGE] = [measure(LARGE)]
        print_restores(runs)
        print_trees()
    except (OSError, RuntimeError) as problem:
        print(json.dumps({"id": "SCALE", "error": str(problem)}), flush=True)
        return 1
    for ranks in sorted(runs)[1:]:
        for made in goal_rows(ranks, runs):
            print(json.dumps(made), flush=True)
    for phase in PHASES:
        for ranks in runs:
            for who in ("coordinator", "node"):
                print(json.dumps(row(phase, ranks, who, runs)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
