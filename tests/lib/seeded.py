# SPDX-License-Identifier: Apache-2.0
"""Suites of stories: each is one run of a random scenario, made from its seed. A story has `tell`, which raises Broken,
`close` and `figures`."""

import argparse
import shutil
import tempfile
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ENOUGH = 6  # runs, for a suite to do all that it is made for


class Broken(Exception):
    """A promise was broken."""


def arguments(description):
    parser = argparse.ArgumentParser(description=description.split(":", 1)[0])
    parser.add_argument("build", type=lambda text: Path(text).resolve(), help="build directory (with -DTCK_TESTS=ON)")
    parser.add_argument("--seed", type=int, default=1, help="the first (1)")
    parser.add_argument("--count", type=int, default=10, help="runs (10)")
    parser.add_argument("--jobs", type=int, default=2, help="runs at the same time (2)")
    parser.add_argument("--verbose", action="store_true", help="what happens, as it happens")
    return parser.parse_args()


@dataclass(frozen=True)
class Suite:
    name: str
    """Of the runs' directories."""
    story: Callable
    """Story(build, work, seed, say)."""
    when_broken: Callable = lambda story: None
    """What is kept of a bad run, besides its directory."""
    needed: tuple[str, ...] = ()
    """Figures that are above 0 in ENOUGH runs or more, or these runs have tested less than they say."""

    def run(self, options):
        """The exit status: 1 if a promise was broken in any run."""
        total, failed = {}, []
        with ThreadPoolExecutor(options.jobs) as pool:
            seeds = range(options.seed, options.seed + options.count)
            runs = [(seed, pool.submit(self._one, options, seed)) for seed in seeds]
            for seed, run in runs:
                broken, figures = run.result()
                line = f"seed {seed}: {'BROKEN ' + broken if broken else 'good'} {figures}"
                print(line, flush=True)
                failed += [line] if broken else []
                total = {key: total.get(key, 0) + value for key, value in figures.items()}
        for line in failed:  # once more, where a long log is read first
            print(line)
        print(f"{options.count} runs, {len(failed)} with a broken promise: " +
              ", ".join(f"{value} {key}" for key, value in total.items()))
        lacking = [key for key in self.needed if options.count >= ENOUGH and not total.get(key)]
        if lacking:
            print(f"BROKEN no {' and no '.join(lacking)} in {options.count} runs")
        return 1 if failed or lacking else 0

    def _one(self, options, seed):
        """(what was broken or None, figures)."""
        work = Path(tempfile.mkdtemp(prefix=f"{self.name}.{seed}.", dir=options.build))
        with open(work / "story", "w", encoding="utf-8", buffering=1) as out:
            def say(text):
                print(text, file=out)
                if options.verbose:
                    print(f"{seed}: {text}", flush=True)

            story = self.story(options.build, work, seed, say)
            broken = self._outcome(story, say)
        if broken is None:
            shutil.rmtree(work)
        return broken and f"{broken}\n    {work}", story.figures

    def _outcome(self, story, say):
        """What was broken, or None. An error while it is closed counts too."""
        found = [_broken(story.tell)]
        if found[0]:
            say(f"BROKEN {found[0]}")
            found.append(_broken(lambda: self.when_broken(story)))
        found.append(_broken(story.close))
        return "\n    ".join(filter(None, found)) or None


def _broken(step):
    """Why it failed, or None."""
    try:
        step()
    except Broken as error:
        return str(error)
    except Exception:  # a fault of the driver counts as one of the run
        return traceback.format_exc()
    return None
