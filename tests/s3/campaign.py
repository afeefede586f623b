#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Jobs with a bucket as storage, and faults at random moments: campaign.py BUILD [--seed S] [--count N] [--jobs J]
[--verbose]

Runs the seeds S to S + N - 1, each with a SeaweedFS of its own, behind the proxy. Of each the line says what became of
it; a run in which a promise was broken leaves its directory. Exit status 0: no promise was broken, 1: one was."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "lib"), str(HERE.parent / "soak")]

from bucket_story import BucketStory  # noqa: E402
from seeded import Suite, arguments  # noqa: E402


def keep_logs(story):
    if story.job:
        (story.work / "logs").write_text(story.job.logs(), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(Suite("bucket", BucketStory, keep_logs, ("faults", "kills", "races")).run(arguments(__doc__)))
