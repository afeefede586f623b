# SPDX-License-Identifier: Apache-2.0
"""Measures one way to save, in a process (or a few) of its own: prints what it cost as a ratio to a plain copy of the
same bytes, taken in turns with it."""

import argparse
import json
import statistics
import time

import torch

import ways
from state import State

FAMILIES = {"cpu": "PEERS", "cuda": "GPU.stall"}
STATE_BYTES = 1 << 30
COMPUTE_S = 0.3  # between two saves, so that what goes on in the background can be hidden


def one_save(way, state, step):
    """Stall, and time until it is complete. What a GPU's stream waits for is stall, too."""
    state.settle()
    begin = time.perf_counter()
    way.save(step)
    stall = time.perf_counter() - begin
    if way.overlaps:
        time.sleep(COMPUTE_S)
    pause = time.perf_counter()
    way.before_step()
    state.settle()
    stall += time.perf_counter() - pause
    way.finish()
    return stall, time.perf_counter() - begin


def measure(way, state, rounds):
    copies, saves = [], []
    state.copy_seconds()
    for step in range(1, rounds + 2):
        state.train(step)
        copies.append(state.copy_seconds())
        saves.append(one_save(way, state, step))
        way.clean(step)
    return copies, saves


def quartiles(samples):
    return statistics.quantiles(samples, n=4, method="inclusive") if len(samples) > 1 else samples * 3


def row(family, name, kind, what, ratios, copy_s):
    low, middle, high = quartiles(ratios)
    print(json.dumps({
        "id": f"{family}.{name}.{kind}", "what": what, "unit": "ratio of time", "better": "less",
        "value": float(f"{middle:.4g}"), "rounds": len(ratios), "spread": float(f"{(high - low) / middle:.4g}"),
        "reference": "copy of the bytes into kept memory", "reference_value": float(f"{copy_s * 1e3:.4g}"),
        "reference_unit": "ms"}), flush=True)


def report(name, way, state, copies, saves):
    copy_s = statistics.median(copies)
    size = f"{state.bytes / 2**20:.0f} MiB"
    family = FAMILIES["cuda" if state.cuda else "cpu"]
    stalls = [stall / copy_s for stall, _ in saves]
    row(family, name, "stall", f"{name}: stall of a later save of {size}", stalls[1:], copy_s)
    row(family, name, "first", f"{name}: stall of the first save", stalls[:1], copy_s)
    complete = f"{name}: until {way.complete}" + (f", {COMPUTE_S} s of computing included" if way.overlaps else "")
    row(family, name, "complete", complete, [whole / copy_s for _, whole in saves[1:]], copy_s)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=ways.WAYS)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--device", choices=FAMILIES, default="cpu")
    parser.add_argument("--rank", type=int, default=0)
    args = parser.parse_args()
    torch.set_num_threads(1)
    kind = ways.WAYS[args.name]
    ways.join(kind.world, args.rank, args.dir)
    state = State(STATE_BYTES // kind.share, args.device)
    way = kind(state, args.dir)
    copies, saves = measure(way, state, args.rounds)
    way.close()
    if args.rank == 0:
        report(args.name, way, state, copies, saves)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
