# SPDX-License-Identifier: Apache-2.0
"""Draws the result of `bench/run PEERS --json FILE.jsonl` as an SVG: plot.py FILE.jsonl FILE.svg."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import draw

PANELS = {"first": "stall of the first save / a copy", "stall": "stall of a later save / a copy",
          "done": "until it is done / a copy", "durable": "until on storage and synced / a copy",
          "memory": "memory added / state", "written": "bytes written / state"}
STALLS = ("first", "stall")  # of very different sizes


def panels(rows):
    """By title, the value of each way in the order of the rows. Times are multiples of what a copy takes."""
    rows = [row for row in rows if "kind" in row]
    ways = dict.fromkeys(row["way"] for row in rows)
    values = {(row["way"], row["kind"]): row["value"] for row in rows}
    return {title: {way: values.get((way, kind)) for way in ways} for kind, title in PANELS.items()}


def draw_rows(rows, path):
    draw.bars(panels(rows), path, columns=2, size=(9, 8.5), log=[PANELS[kind] for kind in STALLS])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    draw_rows(draw.rows_of(sys.argv[1], "PEERS"), sys.argv[2])


if __name__ == "__main__":
    main()
