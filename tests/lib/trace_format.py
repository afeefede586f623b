# SPDX-License-Identifier: Apache-2.0
"""What Perfetto's importer takes of the Trace Event Format, for traces that are an array without its closing bracket, one
event per line: trace_format.py FILE... raises AssertionError with the first line that it would refuse, drop or misread.

The importer reads one object after the other, so neither the bracket nor the comma at the end matters. It drops events
without a number as their time (except metadata), counters whose arguments are not numbers, spans without an id, and
instants of an unknown scope. Of names, it refuses escapes such as \\u0041. Spans of one id lie on one track: each
end closes the newest begin there, so it must be that of the same name, and no earlier."""

import json
import sys
from pathlib import Path

MAX_PID = 2**32 - 1
MAX_US = 2**63 // 1000  # it counts nanoseconds in 64 bits
KEYS = {"M": {"name", "ph", "pid", "tid", "args"}, "i": {"name", "ph", "ts", "pid", "tid", "s"},
        "b": {"name", "ph", "cat", "id", "ts", "pid", "tid"}, "e": {"name", "ph", "cat", "id", "ts", "pid", "tid"},
        "C": {"name", "ph", "ts", "pid", "tid", "args"}}


def events_of(text):
    """The events of a trace whose last line may still be written."""
    assert text.startswith("[\n"), text[:40]
    return [_event(line) for line in text[2:].split("\n")[:-1]]


def check(events):
    """Returns how many ends have no begin, as if the agent that wrote it was killed before: those are dropped."""
    open_spans, named, unmatched = {}, set(), 0
    for event in events:
        _check_keys(event)
        if event["ph"] == "M":
            named.add(event["pid"])
        assert event["pid"] in named or event["pid"] == 0, f"a process without a name: {event}"
        if event["ph"] == "b":
            open_spans.setdefault(_track(event), []).append(event)
        elif event["ph"] == "e":
            unmatched += not _close(open_spans.get(_track(event), []), event)
    return unmatched


def _without_doubles(pairs):
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key twice: {keys}"
    return dict(pairs)


def _no_number(text):
    raise AssertionError(f"{text} is no number in JSON")


def _event(line):
    assert line.endswith(","), f"no comma between this event and the next one: {line}"
    event = json.loads(line[:-1], object_pairs_hook=_without_doubles, parse_constant=_no_number)
    assert isinstance(event, dict), line
    assert "\\u" not in line, f"an escape that the importer refuses: {line}"
    return event


def _check_keys(event):
    phase = event.get("ph")
    assert phase in KEYS, f"a phase that Tierckpt does not write: {event}"
    assert not KEYS[phase] - event.keys(), f"{KEYS[phase] - event.keys()} are missing: {event}"
    assert isinstance(event["name"], str) and event["name"], event
    assert all(_is_whole(event[key], MAX_PID) for key in ("pid", "tid")), event
    assert phase == "M" or _is_whole(event["ts"], MAX_US), f"its time is no number of microseconds: {event}"
    assert not any(isinstance(value, list) for value in event.values()), f"an array outside of args: {event}"
    assert isinstance(event.get("args", {}), dict), event
    if phase == "M":
        assert event["name"] == "process_name" and event["args"].get("name"), event
    elif phase == "C":
        assert event["args"] and all(type(value) in (int, float) for value in event["args"].values()), event
    elif phase == "i":
        assert event["s"] in ("g", "p", "t"), event
    else:
        assert event["cat"] and isinstance(event["id"], str) and event["id"], event


def _is_whole(value, most):
    return type(value) is int and 0 <= value <= most


def _track(event):
    return event["pid"], event["cat"], event["id"]


def _close(spans, end):
    if not spans:
        return False
    begin = spans.pop()
    assert end["name"] == begin["name"], f"it ends {begin['name']}: {end}"
    assert end["ts"] >= begin["ts"], f"it ends before it begins: {end}"
    return True


if __name__ == "__main__":
    for path in sys.argv[1:]:
        print(path, check(events_of(Path(path).read_text(encoding="utf-8"))))
