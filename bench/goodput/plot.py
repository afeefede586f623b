# SPDX-License-Identifier: Apache-2.0
"""Draws the result of `bench/run GOODPUT --json FILE.jsonl` as an SVG: plot.py FILE.jsonl FILE.svg. Needs matplotlib."""

import json
import sys

import matplotlib
import matplotlib.pyplot as plt

matplotlib.use("svg")
PANELS = [("goodput", "share of the time\nthat made kept steps"), ("lost", "steps lost"),
          ("recovery", "seconds from a fault\nto the next new step")]


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with open(sys.argv[1], encoding="utf-8") as file:
        rows = [row for row in map(json.loads, file) if row["id"].startswith("GOODPUT.") and "goodput" in row]
    figure, axes = plt.subplots(1, len(PANELS), figsize=(9, 2.6))
    for axis, (key, title) in zip(axes, PANELS):
        bars = axis.barh([row["way"] for row in rows], [row[key] for row in rows],
                         color=["#1b6ca8" if row["way"] == "tierckpt" else "#b0b7bf" for row in rows])
        axis.bar_label(bars, fmt="%.3g", padding=3)
        axis.set_title(title, fontsize=9)
        axis.margins(x=0.2)
        axis.invert_yaxis()
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(sys.argv[2], metadata={"Date": None})


if __name__ == "__main__":
    main()
