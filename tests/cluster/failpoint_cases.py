#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tierckptd --failpoints | failpoint_cases.py SEED [bucket]: the arguments for failpoint.sh, one case a line, in an order
that the seed decides: each point with each action, and three of them at a time, chosen by the seed. With "bucket" each
point that only a job passes whose storage is a bucket, and without it the others."""

import random
import sys

ACTIONS = {"step": ["kill", "sleep:300"], "call": ["kill", "EIO", "ENOSPC"], "bytes": ["kill", "corrupt"]}
# Of a save the second, so that something is committed that could be lost; the first headers are those of free slots;
# what is read second to repair a file is the new one.
HITS = {"repair.read": 2, "save.copying": 3, "save.sealing": 3, "header.unsealing": 3, "save": 2, "header": 30}
# Points on an agent's way back. A supervisor that starts it again is the same process as before.
AGAIN = ("agent.", "parking.", "state.writing", "enrol.allocating", "enrol.form", "header.writ", "catalog.", "file.",
         "supervisor.agent_died")
AGAIN_SECOND = ("supervisor.start",)
# Not hit for certain, or more than is promised: a node is lost with its supervisor, and what is repaired from memory may be
# nowhere else.
NOT_WITH_OTHERS = ("supervisor.", "comeback.", "repair.")
BUCKET = "object."
TRIPLES = 100


def single(points):
    for name, kind in points:
        hit = HITS.get(name, HITS.get(name.split(".")[0], 1))
        for action in ACTIONS[kind]:
            yield f"{name}={action}@{hit}"
        if name.startswith(AGAIN):
            yield f"again:{name}=kill@1"
        if name.startswith(AGAIN_SECOND):
            yield f"again:{name}=kill@2"


def triples(points, rng):
    """The first comes for certain."""
    fit = [point for point in points if not point[0].startswith(NOT_WITH_OTHERS)]
    for _ in range(TRIPLES):
        chosen = rng.sample(fit, 3)
        hits = [1, rng.randint(1, 5), rng.randint(1, 5)]
        yield "again:" + ";".join(f"{name}={rng.choice(ACTIONS[kind])}@{hit}" for (name, kind), hit in zip(chosen, hits))


def main():
    rng = random.Random(int(sys.argv[1]))
    in_bucket = sys.argv[2:] == ["bucket"]
    lines = [line for line in sys.stdin if line.startswith(BUCKET) == in_bucket]
    points = [tuple(line.split("\t")[:2]) for line in lines]
    cases = [*single(points), *([] if in_bucket else triples(points, rng))]
    rng.shuffle(cases)
    print("\n".join(cases))


if __name__ == "__main__":
    main()
