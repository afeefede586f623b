# SPDX-License-Identifier: Apache-2.0
"""The summary of a part: what was lost, where it was restored from, what it cost, and whether the bits are equal."""

import statistics

import parts
import run as runs

TIERS = ("local", "twin", "peer", "storage")


def step_ms(run):
    """Median time of a step, first steps of a process left out: they warm up."""
    times = [event["seconds"] for event in run.of("step") if event["step"] > 3]
    return statistics.median(times) * 1000


def _restores(run, loss):
    """What each rank restored after the loss, in rank order."""
    restores = sorted(run.of("restored", loss.at), key=lambda event: event["rank"])
    steps = sorted({event["step"] for event in restores})
    if len(restores) != runs.WORLD_SIZE or len(steps) != 1:
        raise runs.DemoError(f"{len(restores)} of {runs.WORLD_SIZE} ranks restored, steps {steps}")
    return restores


def _saves(run):
    """(stall in seconds, bytes) of every save of every rank: the stall is the save call as the trainer saw it and the
    fence before the next optimizer step."""
    by_process = {}
    for event in run.of("step"):
        by_process.setdefault(event["pid"], []).append(event)
    saves = []
    for steps in by_process.values():
        for before, save, after in zip(steps, steps[1:], steps[2:]):
            if save["saved"]:
                fence = (after["stall_ns"] - save["stall_ns"]) / 1e9
                saves.append((save["save_seconds"] + fence, after["bytes_copied"] - before["bytes_copied"]))
    return saves


def take(part, run, loss, reference, differences):
    """All figures of a part; the keys stand in the file that --json writes."""
    restores = _restores(run, loss)
    since = restores[0]["at"] - restores[0]["seconds"]
    first = min((event["at"] for event in run.of("step", since)), default=since)
    detection = loss.detected - loss.at if loss.detected else 0.0
    attach = max(event["seconds"] for event in run.of("attached", loss.at))
    restore = max(event["seconds"] for event in restores)
    saves = _saves(run)
    stalls = [stall for stall, _ in saves] or [0.0]
    trained = sum(event["seconds"] for event in run.of("step"))
    return {
        "name": part.name,
        "title": part.title,
        "lost": loss.text,
        "newest_step": loss.newest_step,
        "restored_step": restores[0]["step"],
        "steps_lost": loss.newest_step - restores[0]["step"],
        "sources": {tier: sum(event["sources"][tier] for event in restores) for tier in TIERS},
        "ranks": [
            {"rank": event["rank"], "before": loss.homes[event["rank"]], "now": event["node"], **event["sources"]}
            for event in restores
        ],
        "bytes_per_save": sum(size for _, size in saves) * runs.WORLD_SIZE // max(len(saves), 1),
        "stall_ms_median": statistics.median(stalls) * 1000,
        "stall_ms_mean": statistics.fmean(stalls) * 1000,
        "stall_ms_max": max(stalls) * 1000,
        "stall_percent": 100 * sum(stalls) / trained,
        "step_ms": step_ms(run),
        "reference_step_ms": reference["step_ms"],
        "recovery_seconds": first - loss.at,
        "detection_seconds": detection,
        "attach_seconds": attach,
        "restore_seconds": restore,
        "own_seconds": detection + attach + restore,
        "notes": loss.notes,
        "bit_equal": not differences,
        "differences": differences[:20],
    }


def size(count):
    return f"{count / 1e6:.2f} MB" if count >= 100_000 else f"{count / 1e3:.1f} kB"


def lines(a):
    """The account as text."""
    yield f"Account of part {a['name']}: {a['title']}"
    yield f"  lost               {a['lost']}"
    yield (
        f"  steps              reached {a['newest_step']}, restored {a['restored_step']}: "
        f"{a['steps_lost']} lost, computed again"
    )
    yield "  came back from     " + ", ".join(f"{tier} {size(a['sources'][tier])}" for tier in TIERS)
    for rank in a["ranks"]:
        used = ", ".join(f"{tier} {size(rank[tier])}" for tier in TIERS if rank[tier])
        yield f"      rank {rank['rank']}  {rank['before']} -> {rank['now']}  {used}"
    copied = f"{size(a['bytes_per_save'])} copied by all ranks together"
    yield f"  each save          {copied}, every {parts.MEMORY_INTERVAL} steps"
    yield (
        f"  stall per save     median {a['stall_ms_median']:.2f} ms, mean {a['stall_ms_mean']:.2f}, longest "
        f"{a['stall_ms_max']:.2f}: {a['stall_percent']:.1f} % of the time of all steps"
    )
    yield f"  median step        {a['step_ms']:.0f} ms with checkpoints, {a['reference_step_ms']:.0f} ms without any"
    yield (
        f"  loss to first step {a['recovery_seconds']:.1f} s, of which ours {a['own_seconds']:.2f} s (trainers ended "
        f"after {a['detection_seconds']:.2f}, attach {a['attach_seconds']:.2f}, restore {a['restore_seconds']:.2f}); "
        "the rest is the launcher and imports"
    )
    for note in a["notes"]:
        yield f"  {note}"
    equal = "yes: all losses, parameters, optimizer state and random numbers" if a["bit_equal"] else "NO"
    yield f"  bit-equal          {equal}"
    for text in a["differences"]:
        yield f"      {text}"
