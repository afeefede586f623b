# SPDX-License-Identifier: Apache-2.0
"""Rows of the table and goals, made of what the rounds have measured. A round of one way is a dict: copy and first
(seconds), stall, done and durable (lists of seconds, one of each later save), memory and written (bytes per byte of
state), complete (what done means there)."""

import statistics

SYNCHRONOUS, OVERLAPPED, STORAGE = "tierckpt", "tierckpt.overlapped", "tierckpt.storage"
OVERLAPPING = {OVERLAPPED, "torch_checkpointing", "dcp.async.pinned"}  # copy while the training goes on
TIMES = {"first": "stall of the first save", "stall": "stall of a later save", "done": "until {complete}",
         "durable": "until on storage and synced"}
BYTES = {"memory": "memory that it adds, at the most", "written": "bytes written to storage by a save"}
MEMORY_GOAL = 5.3
"""Of ours, with two copies and three slots: three versions on their own node, two where a copy is held, and processes."""


def rounded(number):
    return float(f"{number:.4g}")


def spread(samples):
    """Distance of the quartiles, as a part of the median."""
    middle = statistics.median(samples)
    if len(samples) < 2 or not middle:
        return 0.0
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return (high - low) / middle


def is_ours(name):
    return name.startswith("tierckpt")


def _listed(figure):
    return figure if isinstance(figure, list) else [figure]


def of_round(one, kind):
    """One figure of a round: seconds or bytes, or None where the way has none."""
    samples = _listed(one[kind])
    return None if None in samples else statistics.median(samples)


def has(rounds, kind):
    return all(of_round(one, kind) is not None for one in rounds)


def median(rounds, kind):
    return statistics.median(of_round(one, kind) for one in rounds)


def plain_copy(found):
    """Seconds that a plain copy takes, one figure for all ways. Each way has timed its own, at another time, when other
    load on the machine may have been another, so its own would make a way look better whose copies happened to be slow,
    and the quotient of two rows would not be that of their times."""
    return statistics.median(median(rounds, "copy") for rounds in found.values())


def time_row(family, name, rounds, kind, copy):
    samples = [sample for one in rounds for sample in _listed(one[kind])]
    seconds = median(rounds, kind)
    return {"id": f"{family}.{name}.{kind}", "what": f"{name}: {TIMES[kind].format(**rounds[0])}", "unit": "x a copy",
            "better": "less", "value": rounded(seconds / copy), "rounds": len(samples),
            "spread": rounded(spread(samples)), "reference": "copy of the bytes into kept memory, median of all ways",
            "reference_value": rounded(copy * 1e3), "reference_unit": "ms", "way": name, "kind": kind,
            "seconds": rounded(seconds), "own_copy": rounded(median(rounds, "copy"))}


def byte_row(family, name, rounds, kind):
    samples = [one[kind] for one in rounds]
    value = statistics.median(samples)
    row = {"id": f"{family}.{name}.{kind}", "what": f"{name}: {BYTES[kind]}", "unit": "x the state", "better": "less",
           "value": rounded(value), "rounds": len(samples), "spread": rounded(spread(samples)), "way": name, "kind": kind}
    has_goal = family == "PEERS" and is_ours(name) and kind == "memory"
    return {**row, "goal": MEMORY_GOAL, "met": value <= MEMORY_GOAL} if has_goal else row


def rows(family, name, found):
    """All figures of one way. found: by way, its rounds."""
    rounds, copy = found[name], plain_copy(found)
    times = [time_row(family, name, rounds, kind, copy) for kind in TIMES if has(rounds, kind)]
    return times + [byte_row(family, name, rounds, kind) for kind in BYTES if has(rounds, kind)]


def best(found, kind, names):
    """The way with the least median, or None."""
    names = [name for name in names if has(found[name], kind)]
    return min(names, key=lambda name: median(found[name], kind), default=None)


# id, ours, kind, the peers that it is compared with, the limit of ours / the best peer's. A goal that is set against
# some of the peers is also shown against all of them.
# "100 x less" is a limit of 1/100: so are all of them ratios that should be small.
GOALS = [
    ("stall", SYNCHRONOUS, "stall", lambda peer: peer not in OVERLAPPING, 0.85),
    ("stall.all", SYNCHRONOUS, "stall", lambda peer: True, 0.85),
    ("overlapped", OVERLAPPED, "stall", lambda peer: peer not in OVERLAPPING, 1 / 100),
    ("overlapped.all", OVERLAPPED, "stall", lambda peer: True, 1 / 100),
    ("overlapped.both", OVERLAPPED, "stall", lambda peer: peer in OVERLAPPING, 0.85),
    ("first", SYNCHRONOUS, "first", lambda peer: True, 1 / 10),
    ("first.overlapped", OVERLAPPED, "first", lambda peer: True, 1 / 10),
    ("durable", STORAGE, "durable", lambda peer: True, 0.7),
]
MEANINGS = {
    "stall": "stall / the best peer's that returns when it has copied",
    "stall.all": "stall / that of the best of all peers",
    "overlapped": "stall when the copy overlaps the training / the best peer's that returns when it has copied",
    "overlapped.all": "the same / that of the best of all peers",
    "overlapped.both": "the same / the best peer's that overlaps, too",
    "first": "stall of the first save / the best peer's",
    "first.overlapped": "stall of the first save when the copy overlaps the training / the best peer's",
    "durable": "until on storage and synced / the fastest peer's",
}


def goal_row(family, goal, found):
    """None if ours, or every peer that it is compared with, is missing."""
    id, ours, kind, compared, limit = goal
    peer = best(found, kind, [name for name in found if not is_ours(name) and compared(name)])
    if ours not in found or peer is None:
        return None
    value = median(found[ours], kind) / median(found[peer], kind)
    ratios = [of_round(a, kind) / of_round(b, kind) for a, b in zip(found[ours], found[peer], strict=True)]
    return {"id": f"{family}.goal.{id}", "what": f"{ours}: {MEANINGS[id]}, {peer}", "unit": "ratio", "better": "less",
            "value": rounded(value), "goal": limit, "met": value <= limit, "rounds": len(ratios),
            "spread": rounded(spread(ratios)), "reference": peer,
            "reference_value": rounded(median(found[peer], kind) * 1e3), "reference_unit": "ms"}


def goals(family, found):
    """found: by way, its rounds."""
    return [row for goal in GOALS if (row := goal_row(family, goal, found))]
