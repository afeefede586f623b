# SPDX-License-Identifier: Apache-2.0
"""Bit for bit: a training that lost nodes against one that was never interrupted (and never saved a checkpoint)."""

DIGESTS = ("parameters", "optimizer", "rng")


def outcome(run):
    """What a run computed: losses by (rank, step), digests of the final state by rank."""
    return {
        "losses": {(event["rank"], event["step"]): event["loss"] for event in run.of("step")},
        "finals": {event["rank"]: {key: event[key] for key in DIGESTS} for event in run.of("final")},
    }


def differences(run, reference):
    """Every difference as a line of text; none if the runs are equal. Steps computed twice must agree both times."""
    found = []
    for event in run.of("step"):
        expected = reference["losses"].get((event["rank"], event["step"]))
        if event["loss"] != expected:
            where = f"rank {event['rank']} at step {event['step']} on {event['node']}"
            found.append(f"loss of {where}: {event['loss']}, not {expected}")
    got = outcome(run)
    missing = reference["losses"].keys() - got["losses"].keys()
    found += [f"rank {rank} never computed step {step}" for rank, step in sorted(missing)]
    for rank, expected in sorted(reference["finals"].items()):
        final = got["finals"].get(rank, {})
        found += [f"final {key} of rank {rank} differ" for key in DIGESTS if final.get(key) != expected[key]]
    return found
