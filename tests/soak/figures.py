# SPDX-License-Identifier: Apache-2.0
"""What came of a campaign, or of several together: the figures, and the tables that show them."""

from collections import Counter

TIERS = ("local", "twin", "peer", "storage")


# ---- of one history -------------------------------------------------------------------------------------------------

def _recoveries(events):
    """Seconds from a fault to the first commit after it."""
    seconds, begun = [], None
    for event in events:
        if event["event"] == "injected" and begun is None:
            begun = event["began"]
        elif event["event"] == "settled" and begun is not None:
            seconds.append(round(event["t"] - begun, 3))
            begun = None
    return seconds


def _restore_seconds(events):
    """From each launch to the last rank that restored in it."""
    launched, last = {}, {}
    for event in events:
        if event["event"] == "launch":
            launched[event["launch"]] = event["t"]
        elif event["event"] == "restored":
            last[event["launch"]] = event["t"]
    return [round(last[launch] - launched[launch], 3) for launch in last if launch in launched]


def _steps_lost(events):
    newest, lost, seen = 0, [], set()
    for event in events:
        if event["event"] == "save":
            newest = max(newest, event["step"])
        elif event["event"] in ("restored", "fresh") and event["launch"] not in seen:
            seen.add(event["launch"])
            lost.append(max(0, newest - event["step"]))
            newest = event["step"]
    return lost


def summary(events, broken):
    faults = Counter(e["kind"] for e in events if e["event"] == "injected")
    tiers = Counter()
    for event in events:
        if event["event"] == "restored":
            tiers.update({tier: event[tier] for tier in TIERS})
    held = [event["ms"] for event in events if event["event"] == "held"]
    return {
        "campaigns": 1,
        "seconds": round(events[-1]["t"] - events[0]["t"]),
        "faults": sum(faults.values()),
        "faults_by_kind": dict(sorted(faults.items())),
        "slots_hit": sum(bool(e["hit"]) for e in events if e["event"] == "injected" and e["kind"] == "slot_damaged"),
        "skipped": {e["kind"]: e["why"] for e in events if e["event"] == "skipped_fault"},
        "launches": sum(e["event"] == "launch" for e in events),
        "recoveries": len({e["launch"] for e in events if e["event"] == "restored"}),
        "committed": len({(e["launch"], e["step"]) for e in events if e["event"] == "committed"}),
        "published": len({e["name"] for e in events if e["event"] == "checked"}),
        "restored_bytes": dict(tiers),
        "steps_lost": _steps_lost(events),
        "seconds_to_restored": _restore_seconds(events),
        "seconds_to_commit": _recoveries(events),
        "saves": len(held),
        "held_ms": round(max(held, default=0), 1),
        "agents_died": [e["said"] for e in events if e["event"] == "agent_died"],
        "lost_committed": sum(b["promise"] in ("lost", "monotonic") for b in broken),
        "broken": broken,
    }


def _both(a, b):
    if isinstance(a, dict):
        return {key: _both(a[key], b[key]) if key in a and key in b else a.get(key, b.get(key)) for key in {**a, **b}}
    return a if isinstance(a, str) else a + b


def merged(several):
    """The figures of several campaigns as if they had been one."""
    whole = several[0]
    for figures in several[1:]:
        whole = {**_both(whole, figures), "held_ms": max(whole["held_ms"], figures["held_ms"])}
    return {**whole, "faults_by_kind": dict(sorted(whole["faults_by_kind"].items()))}


# ---- tables ---------------------------------------------------------------------------------------------------------

def quantile(values, share):
    return round(sorted(values)[min(len(values) - 1, int(share * len(values)))], 2) if values else 0.0


def _spread(values, unit):
    return f"median {quantile(values, 0.5):g}{unit}, 99 % {quantile(values, 0.99):g}{unit}, " \
           f"at most {quantile(values, 1):g}{unit}"


def from_tiers(figures):
    tiers = figures["restored_bytes"]
    total = sum(tiers.values()) or 1
    return ", ".join(f"{tier} {100 * tiers.get(tier, 0) / total:.0f} %" for tier in TIERS)


def rows(figures):
    """(what, figure), but for the kinds of faults."""
    of_slots = figures["faults_by_kind"].get("slot_damaged", 0)
    return [
        ("slots hit", f"{figures['slots_hit']} of {of_slots}"),
        ("launches", f"{figures['launches']}, {figures['recoveries']} of them restored"),
        ("versions committed", figures["committed"]),
        ("versions published", f"{figures['published']}, each read and compared"),
        ("restored from", from_tiers(figures) + " of the bytes"),
        ("steps lost", _spread(figures["steps_lost"], "")),
        ("launch to restored", _spread(figures["seconds_to_restored"], " s")),
        ("fault to next commit", _spread(figures["seconds_to_commit"], " s")),
        ("held by a save", f"at most {figures['held_ms']} ms in {figures['saves']} saves"),
        ("agents ended by UCX", len(figures["agents_died"])),
        ("committed and lost", figures["lost_committed"]),
        ("promises broken", len(figures["broken"])),
    ]


def table(figures):
    lines = [f"{'faults injected':20} {figures['faults']}"]
    lines += [f"  {kind:18} {count}" for kind, count in figures["faults_by_kind"].items()]
    lines += [f"  {kind:18} skipped: {why}" for kind, why in figures["skipped"].items()]
    return "\n".join(lines + [f"{what:20} {figure}" for what, figure in rows(figures)])


def bound(figures):
    """The rule of three: what so many faults without a loss say."""
    if figures["lost_committed"] or figures["faults"] < 30:
        return ""
    return f"at most 1 of {figures['faults'] // 3} such faults loses a committed version (95 %)"


def markdown(title, figures, campaigns):
    """As a release note carries it. campaigns: (seed, figures or None, verdict, seconds)."""
    whole = [("campaigns", figures["campaigns"]), ("faults injected", figures["faults"])] + rows(figures)
    lines = [title, "", "| | |", "|---|---|"] + [f"| {what} | {figure} |" for what, figure in whole]
    if bound(figures):
        lines.append(f"| so, for these kinds of faults, here | {bound(figures)} |")
    lines += ["", "| fault | times |", "|---|---|"]
    lines += [f"| {kind} | {count} |" for kind, count in figures["faults_by_kind"].items()]
    lines += [f"| {kind} | skipped: {why} |" for kind, why in figures["skipped"].items()]
    lines += ["", "| seed | faults | committed | restored from | steps lost, at most | restored within | seconds | |",
              "|---|---|---|---|---|---|---|---|"]
    for seed, f, verdict, seconds in campaigns:
        cells = ["-"] * 5 if f is None else [f["faults"], f["committed"], from_tiers(f), max(f["steps_lost"], default=0),
                                             f"{quantile(f['seconds_to_restored'], 1):g} s"]
        lines.append("| " + " | ".join(map(str, [seed, *cells, seconds, verdict])) + " |")
    return "\n".join(lines) + "\n"
