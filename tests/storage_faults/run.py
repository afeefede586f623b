#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs over a storage that lies: run.py BUILD [--seed S] [--count N] [--jobs J] [--verbose]

Runs the seeds S to S + N - 1. Of each the line says what became of it; a run in which a promise was broken leaves its
directory. Exit status 0: no promise was broken, 1: one was, 77: the file system cannot be mounted here."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "lib"))

from seeded import arguments, Suite  # noqa: E402
from story import Story  # noqa: E402


def why_not(build):
    if not (build / "tests/storage_faults/lying_fs").exists():
        return "lying_fs is not built: there is no libfuse3"
    if os.geteuid() != 0 or not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "needs root and /dev/fuse to mount a file system"
    return None


def keep_logs(story):
    (story.work / "logs").write_text(story.job.logs(), encoding="utf-8")


def main():
    options = arguments(__doc__)
    if reason := why_not(options.build):
        print(f"skipped: {reason}")
        return 77
    return Suite("faults", Story, keep_logs).run(options)


if __name__ == "__main__":
    sys.exit(main())
