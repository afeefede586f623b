# SPDX-License-Identifier: Apache-2.0
"""The page of a run: one HTML file that needs nothing else. Imports jinja2."""

from datetime import datetime, timezone
from pathlib import Path

import jinja2

from . import charts
from .run import PHASES, SOURCES, Run, Start, StepCost, lost_with_interval, quantile

_INTERVALS = (1, 10, 100, 1000)
_COSTLIEST = 8
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def page(run: Run, job: str) -> str:
    """The HTML. All texts from traces are escaped."""
    source = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    template = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined).from_string(source)
    nodes = list(run.nodes)
    begun = datetime.fromtimestamp(run.begin, timezone.utc)
    return template.render(
        title=f"Run of {job}",
        subtitle=f"{begun:%Y-%m-%d %H:%M:%S} UTC, {_seconds(run.end - run.begin)}, {len(nodes)} nodes: "
                 f"{', '.join(nodes[:16])}{', ...' if len(nodes) > 16 else ''}",
        summary=_summary(run), intervals=_INTERVALS, restarts=[_restart(run, start) for start in run.restarts],
        recoveries=[_recovery(run, start) for start in run.recoveries], costs=_costs(run),
        cost_nodes=len(run.step_costs), cost_chart=charts.step_costs(run) if run.step_costs else "", charts=[
            ("Steps", "A dashed line is a restart of the training.", charts.steps(run)),
            ("Stall", "How long a save kept a trainer from training; mean of each second with a save.",
             charts.stalls(run)),
            ("Step time", "Smoothed, of the slowest trainer of each node.", charts.step_times(run)),
            ("Work of the agents", "How long each version was copied by trainers (save), digested, copied to peers, "
                                   "and written to storage (drain), on the slowest node.", charts.phases(run)),
            ("Memory", "Allocated for snapshots, by node.", charts.memory(run))])


def _summary(run: Run) -> list[tuple[str, str]]:
    def count(name: str) -> str:
        return str(sum(getattr(version, name) is not None for version in run.versions))

    def times(name: str) -> str:
        found = [version.seconds[name] for version in run.versions if name in version.seconds]
        return f"{_seconds(quantile(found, 0.5))} / {_seconds(quantile(found, 0.99))}"

    waits = [version.committed - version.begun for version in run.versions if version.committed is not None]
    stalls = [ms / 1000 for _, ms in run.stalls_ms]
    lost = [start.steps_lost for start in run.restarts if start.steps_lost is not None]
    return [
        ("versions begun", str(len(run.versions))), ("committed in memory", count("committed")),
        ("published on storage", count("published")), ("aborted", count("failed")),
        ("stall of a save, median / 99 %", f"{_seconds(quantile(stalls, 0.5))} / {_seconds(quantile(stalls, 0.99))}"),
        ("from save to commit, median / 99 %", f"{_seconds(quantile(waits, 0.5))} / {_seconds(quantile(waits, 0.99))}"),
        *((f"{name}, median / 99 %", times(name)) for name in PHASES),
        ("longest time between two commits", _seconds(run.longest_without_commit())),
        ("restarts", str(len(run.restarts))), ("steps lost by them", str(sum(lost)))]


def _restart(run: Run, start: Start) -> list[str]:
    restored = {None: "not known", 0: "nothing"}.get(start.restored, str(start.restored))
    return [_seconds(start.at - run.begin), ", ".join(start.lost) or "none", str(start.reached), restored,
            "not known" if start.steps_lost is None else str(start.steps_lost),
            _seconds(start.restored_at and start.restored_at - start.at),
            _seconds(start.recovered_at and start.recovered_at - start.at),
            *(str(lost_with_interval(start, interval)) for interval in _INTERVALS),
            str(max(0, start.reached - start.published))]


def _recovery(run: Run, start: Start) -> list[str]:
    restored = "not known" if start.restored is None else str(start.restored)
    return [_seconds(start.at - run.begin), restored,
            *(_shards(*start.fetched[source]) if source in start.fetched else "none" for source in SOURCES)]


def _shards(count: int, size: int) -> str:
    return f"{_bytes(size)} ({count} shard{'s' * (count != 1)})"


def _costs(run: Run) -> list[list[str]]:
    """The newest estimates, of the nodes on which a step is made longer most."""
    newest = sorted(((costs[-1], node) for node, costs in run.step_costs.items()), key=lambda pair: -pair[0].mean)
    return [_cost(node, cost) for cost, node in newest[:_COSTLIEST]]


def _cost(node: str, cost: StepCost) -> list[str]:
    return [node, _seconds(cost.quiet_ms / 1000), _seconds(cost.busy_ms / 1000), f"{100 * cost.mean:.2f} %",
            f"{100 * cost.low:.2f} to {100 * cost.high:.2f} %", f"{100 * cost.target:.3g} %"]


def _bytes(value: int) -> str:
    power = min(max(value.bit_length() - 1, 0) // 10, len(_UNITS) - 1)
    if power < len(_UNITS) - 1 and round(value / 1024**power, 1) == 1024:
        power += 1
    return f"{value / 1024**power:.{1 if power else 0}f} {_UNITS[power]}"


def _seconds(value: float | None) -> str:
    if value is None:
        return "not known"
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min" if value < 7200 else f"{value / 3600:.1f} h"
