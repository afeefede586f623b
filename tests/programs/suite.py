#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Third-party programs, killed and resumed: suite.py [--seed S] [--count N] [--case I] [--only NAME]... [--quick]
[--jobs J] [--list] [--table]

The seed alone determines the order of the programs and the kills; case I of a seed is always the same. Without --count
each program has one case. Prints a line "STATUS|NAME|TEXT" for each program that ran: 0 success, 1 failure, 77
skipped."""

import argparse
import collections
import os
import shutil
import sys
import tempfile
import textwrap
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent), str(Path(__file__).resolve().parents[1] / "python")]

import place  # noqa: E402
from kills import order, plan  # noqa: E402
from program import programs  # noqa: E402


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split(":", 1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, help="cases; default: one for each program")
    parser.add_argument("--case", type=int, help="only the case of this number")
    parser.add_argument("--only", action="append", help="only this program")
    parser.add_argument("--quick", action="store_true", help="only those of the default run")
    parser.add_argument("--jobs", type=int, default=1, help="number of cases run in parallel (1)")
    parser.add_argument("--list", action="store_true", help="list the programs")
    parser.add_argument("--table", action="store_true", help="print the documentation's sections with added lines")
    return parser.parse_args()


class Suite:
    def __init__(self, args, chosen):
        self._args = args
        self._chosen = {program.name: program for program in chosen}
        self._scratch = Path(tempfile.mkdtemp(prefix="tck-programs-"))
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(self._scratch / "inductor")  # compiled once for all starts
        self._references, self._lock = {}, collections.defaultdict(threading.Lock)
        self.results = collections.defaultdict(list)  # name -> (case, good, text)

    def cases(self):
        """(number, program) of each case, in the order given by the seed, which does not depend on installed
        packages."""
        names = order(self._args.seed, list(self._chosen))
        numbers = range(self._args.count or len(names)) if self._args.case is None else [self._args.case]
        cases = [(number, self._chosen[names[number % len(names)]]) for number in numbers]
        return [(number, program) for number, program in cases if not program.missing()]

    def _reference(self, program):
        from case import Wrong, reference

        with self._lock[program.name]:
            if program.name not in self._references:
                try:
                    self._references[program.name] = reference(program, self._scratch / program.name)
                except Wrong as error:
                    self._references[program.name] = error
            found = self._references[program.name]
        if isinstance(found, Wrong):
            raise found
        return found

    def run(self, numbered):
        from case import Case, Wrong

        number, program = numbered
        kills = plan(self._args.seed, number, program.steps, program.launched)
        try:
            reference_dir = self._reference(program)
            with Case(program, kills, reference_dir) as case:
                self._note(program, number, True, case.run())
        except Wrong as error:
            where = f"\n(kept: {case.directory}, reference: {reference_dir})" if "case" in locals() else ""
            self._note(program, number, False, f"{' and '.join(map(str, kills))}: {error}{where}")

    def _note(self, program, number, good, text):
        self.results[program.name].append((number, good, text))
        again = "".join(f" --only {name}" for name in self._args.only or ()) + (" --quick" if self._args.quick else "")
        print(f"{'good' if good else 'BAD '} {program.name}, case {number} (again: suite.py --seed {self._args.seed} "
              f"--case {number}{again}): {text}", flush=True)

    def close(self):
        if all(good for cases in self.results.values() for _, good, _ in cases):
            shutil.rmtree(self._scratch, ignore_errors=True)


def verdicts(suite, skipped):
    bad = False
    for program in skipped:
        print(f"77|{program.name}|not installed: {', '.join(program.missing())}")
    for name, cases in sorted(suite.results.items()):
        failed = [(number, text) for number, good, text in sorted(cases) if not good]
        bad |= bool(failed)
        if failed:
            print(f"1|{name}|{len(failed)} of {len(cases)} cases, first: case {failed[0][0]}: "
                  f"{failed[0][1].splitlines()[0]}")
        else:
            print(f"0|{name}|{cases[0][2] if len(cases) == 1 else f'{len(cases)} kills'}")
    return bad


def section(program):
    launched = program.command.format(script=program.name + ".py")
    text = textwrap.fill(f"{program.title}. Launched with `{launched}`.", 120, break_on_hyphens=False)
    return f"## {program.name}\n\n{text}\n\n```python\n" + "\n".join(program.added()) + "\n```"


def table():
    return "\n\n".join(section(program) for program in programs())


def documented() -> bool:
    """True if the documentation has these sections unchanged."""
    return table() in (place.TOP / "docs/frameworks/programs.md").read_text()


def main():
    args = arguments()
    chosen = [program for program in programs() if (not args.quick or program.quick)
              and (args.only is None or program.name in args.only)]
    if args.table:
        print(table())
        return 0
    if args.list:
        print("\n".join(program.name for program in chosen))
        return 0
    if not chosen:
        sys.exit(f"there is no program {args.only}: --list")
    suite = Suite(args, chosen)
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(suite.run, suite.cases()))
    suite.close()
    bad = verdicts(suite, [program for program in chosen if program.missing()])
    if not documented():
        print("1|documented|docs/frameworks/programs.md differs from the output of suite.py --table")
    return bad or not documented()


if __name__ == "__main__":
    if not place.INSTALLED:
        paths = [str(place.TOP / "python"), os.environ.get("PYTHONPATH")]
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    sys.exit(main())
