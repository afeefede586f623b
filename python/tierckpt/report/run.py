# SPDX-License-Identifier: Apache-2.0
"""What happened in a run, from the events of its traces. Pure."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from .traces import Event

Points = list[tuple[float, float]]
"""Times and values."""

PHASES = ("save", "digest", "copy", "drain")
"""Of the phases that a version goes through on a node, those that the page shows."""

SOURCES = ("local", "twin", "peer", "storage")
"""Where a restored shard comes from."""


@dataclass
class Version:
    """A step that was saved, over all nodes. A time is None if that did not happen, or is in no trace."""

    term: int
    step: int
    begun: float
    seconds: dict[str, float] = field(default_factory=dict)
    """The longest time that a phase took on any node."""
    protected: float | None = None
    committed: float | None = None
    published: float | None = None
    failed: float | None = None


@dataclass
class Start:
    """A term: the trainers have started, or were started again."""

    term: int
    at: float
    reached: int
    """The newest step that is known from the time before."""
    lost: tuple[str, ...] = ()
    """Nodes that were lost since the start before."""
    restored: int | None = None
    """The step from which it goes on; 0: nothing was saved, so it began afresh; None: not known."""
    restored_at: float | None = None
    recovered_at: float | None = None
    committed: int = 0
    """The newest step that was committed before, and the newest on storage."""
    published: int = 0
    fetched: dict[str, tuple[int, int]] = field(default_factory=dict)
    """By source: the shards that its recovery has brought to the nodes that need them, and their bytes."""

    @property
    def steps_lost(self) -> int | None:
        """Steps that were trained and are trained again."""
        return None if self.restored is None else max(0, self.reached - self.restored)


@dataclass(frozen=True)
class StepCost:
    """An estimate of an agent: what copies and drains cost a step."""

    at: float
    quiet_ms: float
    """The time of a step without them."""
    low: float
    """By which part of it a step with them takes longer: the mean, with the bounds of its 95 % interval."""
    mean: float
    high: float
    target: float

    @property
    def busy_ms(self) -> float:
        """The time of a step with them."""
        return self.quiet_ms * (1 + self.mean)


@dataclass
class Run:
    """All that the page shows."""

    nodes: dict[str, float]
    """When the last event of each node was."""
    begin: float
    end: float
    versions: list[Version]
    starts: list[Start]
    counters: dict[str, dict[str, Points]]
    """By name and node."""

    @property
    def restarts(self) -> list[Start]:
        """Starts with something to lose."""
        return [start for start in self.starts if start.reached > 0]

    @property
    def recoveries(self) -> list[Start]:
        """Starts for which agents have fetched something."""
        return [start for start in self.starts if start.fetched]

    @property
    def step_costs(self) -> dict[str, list[StepCost]]:
        """By node, in the order of their times."""
        keys = ("quiet us", "low", "mean", "high", "target")
        found = {}
        for node in self.counters.get("step inflation mean", {}):
            rows = zip(*(self.counters[f"step inflation {key}"][node] for key in keys), strict=True)
            found[node] = [StepCost(row[0][0], row[0][1] / 1000, *(value for _, value in row[1:])) for row in rows]
        return found

    @property
    def stalls_ms(self) -> Points:
        """The mean time for which saves have kept trainers waiting, between samples that are about a second apart."""
        found = []
        for node, counts in self.counters.get("stalls", {}).items():
            times = self.counters.get("stall us", {}).get(node, [])
            before, before_us = 0.0, 0.0
            for at, count in counts:
                now_us = next((us for when, us in reversed(times) if when <= at + 0.01), 0.0)
                if count > before and now_us >= before_us:
                    found.append((at, (now_us - before_us) / (count - before) / 1000))
                before, before_us = count, now_us
        return sorted(found)

    def longest_without_commit(self) -> float | None:
        """Seconds between two commits, within one term."""
        terms: dict[int, list[float]] = defaultdict(list)
        for version in self.versions:
            if version.committed is not None:
                terms[version.term].append(version.committed)
        gaps = [later - before for times in map(sorted, terms.values())
                for before, later in zip(times, times[1:], strict=False)]
        return max(gaps, default=None)


def run_of(events: Iterable[Event]) -> Run | None:
    """None if there are no events."""
    reader = _Reader()
    for event in events:
        reader.take(event)
    return reader.run()


def lost_with_interval(start: Start, interval: int) -> int:
    """The steps that this restart would have lost if each `interval` steps had been committed at once."""
    return start.reached % interval


def quantile(values: list[float], part: float) -> float | None:
    """The value below which this part of a list lies, which need not be sorted; None if it is empty."""
    return sorted(values)[round(part * (len(values) - 1))] if values else None


def _by_source(arrivals: Iterable[Event]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for event in arrivals:
        shards, size = found.get(event.args["source"], (0, 0))
        found[event.args["source"]] = shards + 1, size + int(event.args["bytes"])
    return found


class _Reader:
    def __init__(self) -> None:
        self._versions: dict[tuple[int, int], Version] = {}
        self._starts: dict[int, Start] = {}
        self._open: dict[tuple[str, str], float] = {}
        self._counters: dict[str, dict[str, Points]] = defaultdict(lambda: defaultdict(list))
        self._times: list[float] = []
        self._nodes: dict[str, float] = {}
        self._lost: set[str] = set()
        self._fetched: dict[int, dict[tuple[str, int], Event]] = defaultdict(dict)
        self._reached = self._committed = self._published = 0

    def take(self, event: Event) -> None:
        self._times.append(event.at)
        self._nodes[event.node] = event.at
        if event.phase == "C":
            self._counter(event)
        elif event.phase == "b":
            self._begin(event)
        elif event.phase == "e":
            self._end(event)
        elif event.name in ("node lost", "node back"):
            (self._lost.add if event.name == "node lost" else self._lost.discard)(event.args["node"])
        elif event.name in ("term", "restored", "restored nothing", "recovered"):
            self._of_term(event)
        elif event.name == "fetched":
            self._arrival(event)
        else:
            self._stage(event)

    def run(self) -> Run | None:
        if not self._times:
            return None
        for term, start in self._starts.items():
            start.fetched = _by_source(self._fetched[term].values())
        return Run(dict(sorted(self._nodes.items())), min(self._times), max(self._times),
                   sorted(self._versions.values(), key=lambda version: version.begun),
                   sorted(self._starts.values(), key=lambda start: start.at),
                   {name: dict(nodes) for name, nodes in self._counters.items()})

    def _counter(self, event: Event) -> None:
        for key, value in event.args.items():
            name = event.name if key == "value" else f"{event.name} {key}"
            self._counters[name][event.node].append((event.at, float(value)))
        if event.name == "step":
            self._reached = max(self._reached, int(event.args["value"]))

    def _arrival(self, event: Event) -> None:
        """The first arrival of a shard counts: if it is requested again, the node has it already. One of another
        version replaces it, since the version before was given up."""
        shards, shard = self._fetched[int(event.args["in_term"])], (event.node, int(event.args["shard"]))
        if shard not in shards or shards[shard].version != event.version:
            shards[shard] = event

    def _version(self, event: Event) -> Version:
        term, step = event.version
        return self._versions.setdefault((term, step), Version(term, step, event.at))

    def _begin(self, event: Event) -> None:
        self._open[event.node, event.id] = event.at
        if event.name == "save":
            self._version(event)
            self._reached = max(self._reached, event.version[1])

    def _end(self, event: Event) -> None:
        begun = self._open.pop((event.node, event.id), None)
        if begun is not None and event.args.get("ok") and event.version in self._versions:
            seconds = self._version(event).seconds
            seconds[event.name] = max(seconds.get(event.name, 0.0), event.at - begun)

    def _stage(self, event: Event) -> None:
        version = self._versions.get(event.version)
        if version is None or event.name not in ("protected", "committed", "published", "failed"):
            return
        if getattr(version, event.name) is None:
            setattr(version, event.name, event.at)
        if event.name == "committed":
            self._committed = max(self._committed, version.step)
        if event.name == "published":
            self._published = max(self._published, version.step)

    def _of_term(self, event: Event) -> None:
        if event.name == "term":
            self._term(event)
            return
        if not self._starts:
            return
        start = self._starts[max(self._starts)]
        if event.name == "recovered":
            start.recovered_at = start.recovered_at or event.at
        elif start.restored is None:
            start.restored, start.restored_at = event.version[1], event.at
            self._committed, self._published = start.restored, min(self._published, start.restored)

    def _term(self, event: Event) -> None:
        term = event.version[0]
        if self._starts and term <= max(self._starts):
            return  # another node has seen it before
        self._starts[term] = Start(term, event.at, self._reached, tuple(sorted(self._lost)), committed=self._committed,
                                   published=self._published)
        self._reached = 0
