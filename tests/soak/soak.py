#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random faults against real trainers, agents and supervisors: soak.py BUILD [--seed S] [--count N] [--plan] [--json FILE]

Exit status 0: no promise was broken, 1: one was (the directory stays), 2: it could not be run."""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import history as histories
from campaign import Campaign, Stuck
from cluster import PROGRAMS, Cluster
from figures import summary, table
from judge import judge
from plan import plan, settings

STRANGERS = {"save/a file of somebody else": "a", "save/other-job/v000000000001.t1/manifest.json": "{}", "run/file": "b"}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("build", type=Path, help="build directory (with -DTCK_TESTS=ON)")
    parser.add_argument("--seed", type=int, default=1, help="makes the plan (1)")
    parser.add_argument("--count", type=int, default=25, help="faults (25)")
    parser.add_argument("--plan", action="store_true", help="print the plan as JSON and do nothing")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--judge", type=Path, metavar="HISTORY", help="judge a history again, run nothing")
    return parser.parse_args()


def put_strangers(work):
    for name, text in STRANGERS.items():
        (work / name).parent.mkdir(parents=True, exist_ok=True)
        (work / name).write_text(text, encoding="utf-8")


def look_at_strangers(work, log):
    """What is not ours is as it was, and nothing new is beside it."""
    for name, text in STRANGERS.items():
        path = work / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            log.add("foreign", path=name, how="changed or gone")
    for report in sorted(work.glob("sanitizer.*")):
        log.add("sanitizer", path=report.name, text=report.read_text(encoding="utf-8", errors="replace")[:2000])
    for folder, known in (("save", {"soak", "lost+found", "of-somebody-else"}), ("run", {"soak"})):
        ours = known | {name.split("/")[1] for name in STRANGERS}
        for path in (work / folder).iterdir():
            if path.name not in ours:
                log.add("foreign", path=f"{folder}/{path.name}", how="is new")


def campaign(options, work):
    """Runs it; the history's path."""
    log = histories.History(work / "history")
    shape = settings(options.seed)
    print(f"seed {options.seed}, {options.count} faults: {json.dumps(shape)}", flush=True)
    cluster = Cluster(options.build.resolve(), work, shape)
    try:
        put_strangers(work)
        try:
            Campaign(cluster, log, plan(options.seed, options.count), lambda text: print(text, flush=True)).run()
        except Stuck as stuck:
            print(f"stuck: {stuck}")
            cluster.set_frozen(False)
            for node in cluster.nodes:
                (work / f"status.{node.name}").write_text(cluster.ask(node, "status"), encoding="utf-8")
        look_at_strangers(work, log)
    finally:
        cluster.close()


def report(options, work, path):
    events = histories.read(path)
    broken = judge(events)
    figures = {"seed": options.seed, **summary(events, broken)}
    print(table(figures))
    for found in broken:
        print(f"BROKEN at {found['t']:.3f}: {found['promise']}: {found['text']}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if broken and work:
        print(f"seed {options.seed}: history, logs and what trainers said are in {work}")
    return 1 if broken else 0


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(2))  # tidies up
    if options.plan:
        for fault in plan(options.seed, options.count):
            print(json.dumps(fault))
        return 0
    if options.judge:
        return report(options, None, options.judge)
    missing = [program for program in PROGRAMS if not (options.build / program).exists()]
    if missing:
        print(f"{options.build} has no {missing[0]}: build with -DTCK_TESTS=ON", file=sys.stderr)
        return 2
    work = Path(tempfile.mkdtemp(dir=options.build.resolve(), prefix="soak."))
    campaign(options, work)
    status = report(options, work, work / "history")
    if status == 0:
        shutil.rmtree(work)
    return status


if __name__ == "__main__":
    sys.exit(main())
