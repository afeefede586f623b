# SPDX-License-Identifier: Apache-2.0
"""Draws the result of `bench/run GOODPUT --json FILE.jsonl`, or of campaign.py, as an SVG: plot.py FILE.jsonl FILE.svg."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import draw

PANELS = {"goodput": "share of the time\nthat made kept steps", "lost": "steps lost",
          "recovery": "seconds from a fault\nto the next new step"}


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    rows = [row for row in draw.rows_of(sys.argv[1], "GOODPUT") if "goodput" in row]
    draw.bars({title: {row["way"]: row[key] for row in rows} for key, title in PANELS.items()}, sys.argv[2], columns=3,
              size=(9, 2.6))


if __name__ == "__main__":
    main()
