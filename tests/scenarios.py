#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What each fault scenario came to: scenarios.py record TEST STATUS EXCUSED WORK (one line of JSON of one cluster test),
scenarios.py show RESULTS LEDGER [SOAK] (the table), scenarios.py check (that scenarios.txt names tests that there are)."""

import json
import re
import sys
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
TIERS = ("local", "twin", "peer", "storage")
RESTORED = re.compile(r"^RESTORED term=(\d+) step=(\d+) local=(\d+) twin=(\d+) peer=(\d+) storage=(\d+) .*seconds=([\d.]+)")
COMMIT = re.compile(r"version (\d+)\.(\d+) is committed$")


# ---- one test --------------------------------------------------------------------------------------------------------

def lines(path):
    return path.read_text(encoding="utf-8", errors="replace").splitlines() if path.exists() else []


def launches_of(work):
    """launch -> what its trainers said: job, last step, steps told committed, what was restored."""
    launches = {}
    for path in work.glob("job.*"):
        launches[int(path.suffix[1:])] = {"job": path.read_text().strip(), "last": 0, "known": set(), "restored": []}
    for path in work.glob("out.*.*"):
        launch = launches.get(int(path.name.split(".")[1]))
        for line in lines(path) if launch else []:
            match = RESTORED.match(line)
            if match:
                launch["restored"].append([float(text) for text in match.groups()])
            elif line.startswith("COMMITTED "):
                launch["known"].add(int(line.split()[1]))
            elif line.startswith("STEP "):
                launch["last"] = max(launch["last"], int(line.split()[1]))
    for line in lines(work / "known"):
        number, step = line.split()
        if int(number) in launches:
            launches[int(number)]["known"].add(int(step))
    return launches


def compare(launches):
    """Steps lost at most, and committed versions that a later launch of the job did not get (None: nothing to compare)."""
    steps, lost = [], None
    last = defaultdict(lambda: (0, set()))  # job -> its former launch
    for _, launch in sorted(launches.items()):
        before, known = last[launch["job"]]
        if launch["restored"]:
            got = min(int(restored[1]) for restored in launch["restored"][:1])
            steps.append(max(0, before - got))
            if known:
                lost = (lost or 0) + sum(step > got for step in known)
            last[launch["job"]] = (max(launch["last"], got), launch["known"] | {step for step in known if step <= got})
        elif launch["last"]:
            last[launch["job"]] = (launch["last"], launch["known"])
        else:
            last[launch["job"]] = (before, known | launch["known"])
    return max(steps, default=None), lost


def record(test, status, excused, work):
    launches = launches_of(work)
    committed = set()
    for log in work.glob("run/*/*/agent.log*"):
        committed |= {(log.parts[-3],) + match.groups() for line in lines(log) if (match := COMMIT.search(line))}
    restored = [r for launch in launches.values() for r in launch["restored"]]
    steps, lost = compare(launches)
    print(json.dumps({
        "test": test.removeprefix("test_"), "status": int(status), "excused": excused,
        "faults": len(lines(work / "faults")), "committed": len(committed),
        "tiers": [tier for at, tier in enumerate(TIERS) if any(r[2 + at] > 0 for r in restored)],
        "steps_lost": steps, "seconds": max((r[6] for r in restored), default=None), "lost": lost}))


# ---- the table -------------------------------------------------------------------------------------------------------

def scenarios():
    """number, claim, tests, a reason if it does not apply."""
    for line in lines(HERE / "scenarios.txt"):
        if line and not line.startswith("#"):
            number, claim, tests = (part.strip() for part in line.split("|"))
            yield int(number), claim, [] if tests.startswith("none:") else tests.split(), tests


def soak_figures(path):
    figures = json.loads(Path(path).read_text(encoding="utf-8"))
    return {"faults": figures["faults"], "committed": figures["committed"],
            "tiers": [tier for tier in TIERS if figures["restored_bytes"].get(tier)],
            "steps_lost": max(figures["steps_lost"], default=None),
            "seconds": max(figures["seconds_to_restored"], default=None),
            "lost": figures["lost_committed"], "excused": ""}


def together(runs):
    """The figures of one test that ran with several seeds."""
    def some(key):
        return [run[key] for run in runs if run[key] is not None]
    return {"faults": sum(some("faults")), "committed": sum(some("committed")),
            "tiers": [tier for tier in TIERS if any(tier in run["tiers"] for run in runs)],
            "steps_lost": max(some("steps_lost"), default=None), "seconds": max(some("seconds"), default=None),
            "lost": sum(some("lost")) if some("lost") else None, "excused": max(run["excused"] for run in runs)}


def unexcused(run):
    return 0 if run["excused"] else run["lost"] or 0


def figures_of(ledger, soak):
    """test -> figures of each run"""
    figures = defaultdict(list)
    for line in map(json.loads, lines(Path(ledger))):
        figures[f"cluster/{line['test']}"].append(line)
    if soak and Path(soak).exists():
        figures["soak/campaign"].append(soak_figures(soak))
    return figures


def text(value):
    return "-" if value is None or value == "" else "+".join(value) or "-" if isinstance(value, list) else str(value)


def worst(statuses):
    """Of the runs of one test: failed, skipped, passed; None if there was none."""
    return next((status for status in statuses if status not in (0, 77)), max(statuses, default=None))


def verdict(statuses):
    count = f" x{len(statuses)}" if len(statuses) > 1 else ""
    return {None: "not run", 0: "ok", 77: "skipped"}.get(worst(statuses), "FAILED") + count


def show(results, ledger, soak=None):
    status = defaultdict(list)
    for line in lines(Path(results)):
        number, name = line.split()[:2]
        status[name.split("@")[0]].append(int(number))  # with several seeds each has its own
    figures, counts = figures_of(ledger, soak), defaultdict(int)
    head = ("", "scenario", "test", "", "faults", "committed", "from", "steps lost", "seconds", "lost versions")
    row = "{:>2}  {:52} {:34} {:8} {:>6} {:>9} {:23} {:>10} {:>7} {}"
    print(row.format(*head))
    for number, claim, tests, why in scenarios():
        came = [worst(status[test]) for test in tests]
        overall = ("not applicable" if not tests else "failed" if any(s not in (None, 0, 77) for s in came) else
                   "passed" if all(s == 0 for s in came) else "passed in part" if 0 in came else
                   "skipped" if 77 in came else "not run")
        counts[overall] += 1
        if not tests:
            print(row.format(number, claim[:52], why, *[""] * 7).rstrip())
        for at, test in enumerate(tests):
            f = together(figures[test]) if figures[test] else {}
            seen = [text(f.get(key)) for key in ("faults", "committed", "tiers", "steps_lost", "seconds", "lost")]
            if f.get("excused") and f.get("lost"):
                seen[-1] = "excused: " + f["excused"]
            print(row.format(number if at == 0 else "", claim[:52] if at == 0 else "", test, verdict(status[test]),
                             *seen).rstrip())
    runs = [run for several in figures.values() for run in several]
    lost = sum(map(unexcused, runs))
    print(", ".join(f"{count} {what}" for what, count in sorted(counts.items())) +
          f"; {sum(run['faults'] for run in runs)} faults, {lost} committed versions lost")
    return 1 if lost else 0


def check():
    """Every test that is named exists; every cluster test is there for a scenario or needs none."""
    bad = 0
    for number, _, tests, why in scenarios():
        for test in tests:
            suite, name = test.split("/", 1)
            there = {"cluster": HERE / f"cluster/test_{name}.sh", "soak": HERE / "soak/soak.py", "sim": HERE / "sim/main.c",
                     "failpoints": HERE / "cluster/failpoints.sh",
                     "unit": next(HERE.glob(f"unit/*/*{name.split('_', 1)[-1]}.c"), HERE / "none")}.get(suite)
            if there is None or not there.exists():
                print(f"scenario {number}: there is no test {test}")
                bad = 1
        if not tests and not why.startswith("none:"):
            print(f"scenario {number}: neither tests nor a reason")
            bad = 1
    numbers = [number for number, *_ in scenarios()]
    if numbers != list(range(1, len(numbers) + 1)):
        print("scenarios.txt: the numbers are not in order")
        bad = 1
    return bad


def main():
    command, *rest = sys.argv[1:] or [""]
    if command == "record" and len(rest) == 4:
        return record(*rest[:3], Path(rest[3]))
    if command == "show" and len(rest) in (2, 3):
        return show(*rest)
    if command == "check":
        return check()
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
