# SPDX-License-Identifier: Apache-2.0
"""Horizontal bars of several ways, ours in another colour, as an SVG that is the same for the same figures. Needs
matplotlib."""

import json

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt

OURS, OTHER = "#1b6ca8", "#b0b7bf"
LEAST_SHOWN = 0.001


def rows_of(path, family):
    """The rows of one family in a file that `bench/run --json` has written."""
    with open(path, encoding="utf-8") as file:
        return [row for row in map(json.loads, file) if row["id"].startswith(f"{family}.")]


def _label(value):
    if value is None:
        return ""
    return f"{value:.3g}" if value >= LEAST_SHOWN else "0"


def _panel(axis, title, names, values, log):
    """A way without a value has no bar."""
    shown = [value or 0 for value in values]
    bars = axis.barh(names, shown, color=[OURS if name.startswith("tierckpt") else OTHER for name in names])
    axis.bar_label(bars, labels=[_label(value) for value in values], padding=3, fontsize=8)
    if log:
        axis.set_xscale("log")
    axis.set_title(title, fontsize=9)
    axis.tick_params(labelsize=8)
    axis.margins(x=0.25)
    axis.spines[["top", "right"]].set_visible(False)


def bars(panels, path, columns, size, log=()):
    """panels: by title, the value of each way, or None. log: the titles of those with a logarithmic scale. All panels
    of a line of the figure have the same ways in the same order."""
    lines = -(-len(panels) // columns)
    with plt.rc_context({"svg.hashsalt": "tierckpt"}):
        figure, axes = plt.subplots(lines, columns, figsize=size, squeeze=False, sharey="row")
        for axis, (title, values) in zip(axes.flat, panels.items(), strict=True):
            _panel(axis, title, list(values), list(values.values()), title in log)
        for first, *others in axes:  # they share their vertical axis
            first.invert_yaxis()
            for axis in others:
                axis.tick_params(left=False)
        figure.tight_layout()
        figure.savefig(path, metadata={"Date": None})
        plt.close(figure)
