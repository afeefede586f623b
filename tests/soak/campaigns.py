#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""As many faults as are wanted, in campaigns of at most 50 with the seeds S, S + 1, ...: campaigns.py BUILD [--seed S]
[--count N] [--jobs J] [--logs DIR] [--json FILE] [--markdown FILE]

Each is a soak.py of its own, so a line of this one is repeated by `soak.py BUILD --seed ITS --count ITS`. Exit status 0:
no promise was broken, 1: one was (that campaign's directory stays), 2: one could not be run."""

import argparse
import hashlib
import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cluster import PROGRAMS
from figures import from_tiers, markdown, merged, quantile, table

MOST = 50  # faults of one campaign: what it published, logged and remembers stays small


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split(":", 1)[0])
    parser.add_argument("build", type=Path, help="build directory (with -DTCK_TESTS=ON)")
    parser.add_argument("--seed", type=int, default=1, help="of the first campaign (1)")
    parser.add_argument("--count", type=int, default=25, help="faults (25)")
    parser.add_argument("--jobs", type=int, default=2, help="campaigns at the same time (2)")
    parser.add_argument("--logs", type=Path, help="what each campaign said goes there (the build directory)")
    parser.add_argument("--json", type=Path, help="write the figures there")
    parser.add_argument("--markdown", type=Path, help="write the tables there")
    return parser.parse_args()


def shares(seed, count):
    """(seed, faults) of each campaign. A longer run begins as the shorter one."""
    return [(seed + at // MOST, min(MOST, count - at)) for at in range(0, count, MOST)]


def digest_of(build):
    """Of the programs under test: all campaigns are to be of one tree."""
    digest = hashlib.sha256()
    for program in (*PROGRAMS, *sorted((build / "runtime").rglob("libtierckpt.so.*"))):
        digest.update((build / program).read_bytes())
    return digest.hexdigest()[:16]


class Runner:
    def __init__(self, options, digest):
        self.options, self.digest = options, digest
        self.logs = options.logs or options.build
        self.running = set()

    def __call__(self, share):
        """One campaign: (seed, figures or None, verdict, seconds)."""
        seed, faults = share
        began = time.monotonic()
        if digest_of(self.options.build) != self.digest:
            return self.told(seed, None, "not run: the programs are no longer those of the first campaign", 0)
        log, figures = self.logs / f"soak.{seed}.log", self.logs / f"soak.{seed}.json"
        figures.unlink(missing_ok=True)
        command = (sys.executable, Path(__file__).with_name("soak.py"), self.options.build, "--seed", str(seed),
                   "--count", str(faults), "--json", figures)
        with open(log, "wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            self.running.add(process)
            status = process.wait()
            self.running.discard(process)
        seconds = round(time.monotonic() - began)
        if not figures.exists():
            return self.told(seed, None, f"not run: status {status}, {log}", seconds)
        found = json.loads(figures.read_text(encoding="utf-8"))
        return self.told(seed, found, "ok" if status == 0 and not found["broken"] else f"BROKEN, {log}", seconds)

    def told(self, seed, figures, verdict, seconds):
        f = figures
        print(f"seed {seed:<6} " + ("" if f is None else
              f"{f['faults']:3} faults {f['committed']:5} committed  {from_tiers(f)}  "
              f"at most {max(f['steps_lost'], default=0)} steps lost, restored in "
              f"{quantile(f['seconds_to_restored'], 1):g} s, {f['lost_committed']} versions lost  ") +
              f"{verdict} ({seconds} s)", flush=True)
        for found in f["broken"] if f else ():
            print(f"    BROKEN at {found['t']:.3f}: {found['promise']}: {found['text']}", flush=True)
        return seed, figures, verdict, seconds

    def end(self, *_):
        for process in list(self.running):
            process.terminate()  # each tidies up
        sys.exit(2)


def title(options, digest):
    return (f"{options.count} random faults, `deploy/check --only soak --seed {options.seed} --count {options.count}`, "
            f"programs {digest}")


def main():
    options = arguments()
    options.build = options.build.resolve()
    missing = [program for program in PROGRAMS if not (options.build / program).exists()]
    if missing:
        print(f"{options.build} has no {missing[0]}: build with -DTCK_TESTS=ON", file=sys.stderr)
        return 2
    digest = digest_of(options.build)
    runner = Runner(options, digest)
    signal.signal(signal.SIGTERM, runner.end)
    with ThreadPoolExecutor(options.jobs) as pool:
        done = list(pool.map(runner, shares(options.seed, options.count)))
    ran = [figures for _, figures, _, _ in done if figures is not None]
    if not ran:
        return 2
    whole = merged(ran)
    print(table(whole))
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, **whole}, indent=1) + "\n", encoding="utf-8")
    if options.markdown:
        options.markdown.write_text(markdown(title(options, digest), whole, done), encoding="utf-8")
    return 1 if whole["broken"] else 2 if any(verdict != "ok" for _, _, verdict, _ in done) else 0


if __name__ == "__main__":
    sys.exit(main())
