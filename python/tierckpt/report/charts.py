# SPDX-License-Identifier: Apache-2.0
"""The charts of the page, as SVG. Imports matplotlib."""

import io
import math
from collections.abc import Callable
from typing import Any

from matplotlib.figure import Figure

from .run import PHASES, Points, Run

_COLORS = {"save": "#4c78a8", "digest": "#72b7b2", "copy": "#f58518", "drain": "#b279a2", "committed": "#54a24b",
           "published": "#b279a2", "lost": "#e45756", "line": "#4c78a8", "without": "#4c78a8",
           "with": "#f58518"}
_MIB = 1 << 20


def _svg(draw: Callable[[Any], None], height: float = 2.6) -> str:
    """What `draw` draws into axes, as an element for a page."""
    figure = Figure(figsize=(10, height), layout="constrained")
    axes = figure.subplots()
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    draw(axes)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()[text.getvalue().index("<svg"):]


def _with_restarts(run: Run, axes: Any) -> None:
    axes.set_xlabel("seconds since the first event")
    axes.set_xlim(0, max(run.end - run.begin, 0.001))
    for start in run.restarts:
        axes.axvline(start.at - run.begin, color=_COLORS["lost"], linewidth=1, linestyle="--")


def _without_zeros(points: Points) -> list[float]:
    """The values; a counter is 0 while there is nothing to count, where the line is interrupted."""
    return [value or math.nan for _, value in points]


def steps(run: Run) -> str:
    """Steps over time, with what was committed and published, and a dashed line for each restart."""

    def draw(axes: Any) -> None:
        for number, (_, points) in enumerate(sorted(run.counters.get("step", {}).items())):
            axes.plot([at - run.begin for at, _ in points], _without_zeros(points), color=_COLORS["line"], linewidth=1,
                      alpha=0.5, label="trained" if number == 0 else None)
        for name, marker in (("committed", "."), ("published", "D")):
            found = [(at - run.begin, version.step) for version in run.versions
                     if (at := getattr(version, name)) is not None]
            axes.plot([at for at, _ in found], [step for _, step in found], marker, color=_COLORS[name], markersize=4,
                      label=name)
        axes.set_ylabel("step")
        axes.legend(frameon=False, loc="upper left")
        _with_restarts(run, axes)

    return _svg(draw, 3.4)


def phases(run: Run) -> str:
    """How long saving, digests, copies and drains of each version took."""

    def draw(axes: Any) -> None:
        for name in PHASES:
            found = [(version.begun - run.begin, 1000 * version.seconds[name]) for version in run.versions
                     if name in version.seconds]
            axes.plot([at for at, _ in found], [ms for _, ms in found], ".", color=_COLORS[name], markersize=4,
                      label=name)
        axes.set_yscale("log")
        axes.set_ylabel("ms, slowest node")
        axes.legend(frameon=False, ncols=len(PHASES), loc="upper left")
        _with_restarts(run, axes)

    return _svg(draw)


def stalls(run: Run) -> str:
    """How long saves have kept trainers waiting."""

    def draw(axes: Any) -> None:
        axes.plot([at - run.begin for at, _ in run.stalls_ms], [ms for _, ms in run.stalls_ms], ".",
                  color=_COLORS["line"], markersize=4)
        axes.set_ylabel("ms per save")
        axes.set_ylim(bottom=0)
        _with_restarts(run, axes)

    return _svg(draw)


def step_times(run: Run) -> str:
    """The smoothed time of a step, by node."""
    return _by_node(run, "step us", 1000, "ms per step")


def step_costs(run: Run) -> str:
    """The time of a step with and without copies and drains, by the estimates of all nodes."""

    def draw(axes: Any) -> None:
        for number, (_, costs) in enumerate(sorted(run.step_costs.items())):
            times = [cost.at - run.begin for cost in costs]
            of = {"without": [cost.quiet_ms for cost in costs], "with": [cost.busy_ms for cost in costs]}
            for name, values in of.items():
                axes.step(times, values, where="post", color=_COLORS[name], linewidth=1, alpha=0.7, marker=".",
                          markersize=3, label=f"{name} copies and drains" if number == 0 else None)
        axes.set_ylabel("ms per step")
        axes.legend(frameon=False, ncols=2, loc="upper left")
        _with_restarts(run, axes)

    return _svg(draw)


def memory(run: Run) -> str:
    """The memory of snapshots, by node."""
    return _by_node(run, "memory bytes", _MIB, "MiB")


def _by_node(run: Run, counter: str, unit: float, label: str) -> str:
    def draw(axes: Any) -> None:
        for node, points in sorted(run.counters.get(counter, {}).items()):
            times = [at - run.begin for at, _ in points] + [run.nodes[node] - run.begin]
            values = [value / unit for value in _without_zeros(points)]
            axes.step(times, values + values[-1:], where="post", linewidth=1, label=node)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        if 1 < len(run.counters.get(counter, {})) <= 8:
            axes.legend(frameon=False, ncols=4)
        _with_restarts(run, axes)

    return _svg(draw)
