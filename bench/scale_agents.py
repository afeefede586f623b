#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""SCALE: what a job of 16, 256 and (--large) 16,384 ranks costs the coordinator's agent and the other agents, phase by
phase. The agents are the real ones, all in one process, over a simulated network and storage (tests/sim), so
messages and bytes are exact, and processor time is that of their own code. Images are tiny: copying is measured
elsewhere."""

import argparse
import json
import os
import statistics
import subprocess
import sys

RANKS_PER_NODE = 8
LEAST, MORE, LARGE = 16, 256, 16384
PHASES = {
    "attach": "attach",
    "register": "register, and restore nothing",
    "version": "one version, from the save to the commit",
    "drain": "its drain, from the request to the publish",
    "loss": "a lost node, and attach and register again",
    "restore_memory": "restore from memory, until all copies are back",
    "restore_storage": "restore from storage, until all copies are back",
}


def measure(ranks):
    """The costs of each phase of one run."""
    program = os.path.join(os.environ["TIERCKPT_BUILD_DIR"], "tests/sim/sim")
    command = [program, "--scale", str(ranks // RANKS_PER_NODE), "--ranks", str(RANKS_PER_NODE), "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    phases = {row["phase"]: row for row in rows if "phase" in row}
    if done.returncode != 0 or not PHASES.keys() <= phases.keys():
        raise RuntimeError(f"{' '.join(command)}: {(done.stdout.splitlines() or ['no output'])[-1]}")
    return phases


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
    except (OSError, RuntimeError) as problem:
        print(json.dumps({"id": "SCALE", "error": str(problem)}), flush=True)
        return 1
    for phase in PHASES:
        for ranks in runs:
            for who in ("coordinator", "node"):
                print(json.dumps(row(phase, ranks, who, runs)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
