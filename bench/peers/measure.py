# SPDX-License-Identifier: Apache-2.0
"""One rank of a round of one way to save, in a process of its own. Rank 0 prints what the saves took, one JSON object a
line. Before and around one last save, which is not timed, it names a moment and waits for a line on its standard input,
so that the one who started it can look at the memory and the writing of all processes."""

import argparse
import json
import statistics
import sys
import time

import torch

import ways
from ranks import Ranks, join
from state import State

IDLE_S = 0.3  # from a save to the next change of the tensors, without load: a copy in the background can be hidden
KINDS = ("stall", "done", "durable")


def say(**what):
    print(json.dumps(what), flush=True)


def one_save(way, state, step, ranks):
    """Seconds from the call: what training waits for, until done, until durable (None: it never is). What a GPU's
    stream waits for is stall, too."""
    state.settle()
    ranks.meet()
    begin = time.perf_counter()
    way.save(step)
    stall = time.perf_counter() - begin
    if way.overlaps:
        time.sleep(IDLE_S)
    pause = time.perf_counter()
    way.before_step()
    state.settle()
    stall += time.perf_counter() - pause
    way.finish(step)
    done = time.perf_counter() - begin
    durable = time.perf_counter() - begin if way.make_durable(step) else 0.0
    most = dict(zip(KINDS, ranks.most([stall, done, durable]), strict=True))
    return most if way.durable else {**most, "durable": None}


def timed(way, state, ranks, saves):
    """The first save and the later ones, each after a plain copy of the same bytes."""
    found = []
    for step in range(1, saves + 2):
        state.train(step)
        ranks.meet()
        copy = ranks.most([state.copy_seconds()])[0]
        found.append({"copy": copy, **one_save(way, state, step, ranks)})
        ranks.meet()
        way.clean(step)
    return found


class Looks:
    """The moments at which the process that started this one looks at memory and writing."""

    def __init__(self, ranks):
        self._ranks = ranks

    def at(self, moment):
        self._ranks.meet()
        if self._ranks.rank == 0:
            say(at=moment)
            sys.stdin.readline()
        self._ranks.meet()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", choices=ways.WAYS)
    parser.add_argument("--dir", required=True)
    parser.add_argument("--saves", type=int, required=True, help="after the first one")
    parser.add_argument("--state-mib", type=int, required=True)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    kind = ways.WAYS[args.name]
    join(args.rank, args.world, args.dir, kind.alone)
    ranks = Ranks(args.rank, args.world, args.dir)
    looks = Looks(ranks)
    state = State(args.state_mib << 20, args.device)
    state.copy_seconds()
    looks.at("start")
    way = kind(state, args.dir, ranks)
    saves = timed(way, state, ranks, args.saves)
    looks.at("before")
    state.train(args.saves + 2)
    one_save(way, state, args.saves + 2, ranks)
    looks.at("after")
    way.close()
    if args.rank == 0:
        say(copy=statistics.median(save["copy"] for save in saves), first=saves[0]["stall"], bytes=state.bytes,
            complete=way.complete, **{kind: [save[kind] for save in saves[1:]] for kind in KINDS})
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
