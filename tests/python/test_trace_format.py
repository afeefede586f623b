# SPDX-License-Identifier: Apache-2.0
"""tests/lib/trace_format.py, which the cluster's traces have to pass, finds what Perfetto would not show."""

import json
import math
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))
import trace_format

PLACE = {"pid": 5, "tid": 0}
NAME = {"name": "process_name", "ph": "M", **PLACE, "args": {"name": "a"}}
BEGIN = {"name": "save", "cat": "version", "ph": "b", "ts": 10, **PLACE, "id": "save 1.1"}
END = {**BEGIN, "ph": "e", "ts": 12}
MARK = {"name": "committed", "cat": "version", "ph": "i", "ts": 13, **PLACE, "s": "p", "args": {"step": 1}}
COUNTER = {"name": "step inflation", "cat": "version", "ph": "C", "ts": 14, **PLACE, "args": {"low": -0.1, "mean": 1}}
GOOD = [NAME, BEGIN, END, MARK, COUNTER]


def unmatched(events):
    return trace_format.check(trace_format.events_of("[\n" + "".join(json.dumps(event) + ",\n" for event in events)))


def test_good_trace_passes():
    assert unmatched(GOOD) == 0
    assert unmatched([NAME, {**MARK, "pid": 0, "name": "7 events were dropped", "s": "g"}]) == 0


def test_spans_of_one_id_nest():
    inner = [{**BEGIN, "ts": 11}, {**END, "ts": 11}]
    assert unmatched([NAME, BEGIN, *inner, END]) == 0
    assert unmatched([NAME, END]) == 1


def test_last_line_may_be_in_the_making():
    text = "[\n" + json.dumps(NAME) + ',\n{"name":"sa'
    assert trace_format.events_of(text) == [NAME]


def without(event, key):
    return {name: value for name, value in event.items() if name != key}


@pytest.mark.parametrize("bad", [
    [BEGIN, END], [NAME, without(BEGIN, "ts")], [NAME, {**BEGIN, "ts": "soon"}], [NAME, {**BEGIN, "ts": -1}],
    [NAME, {**BEGIN, "ts": 10.5}], [NAME, {**BEGIN, "ts": 2**60}], [NAME, without(BEGIN, "id")],
    [NAME, {**BEGIN, "id": ""}], [NAME, without(BEGIN, "cat")], [NAME, BEGIN, {**END, "ts": 9}],
    [NAME, without(MARK, "s")], [NAME, {**MARK, "s": "x"}], [NAME, {**COUNTER, "args": {"low": None}}],
    [NAME, {**COUNTER, "args": {}}], [NAME, {**COUNTER, "args": {"low": True}}], [NAME, {**MARK, "name": "\u00e4"}],
    [NAME, {**MARK, "pid": -1}], [NAME, {**MARK, "pid": 2**32}], [NAME, {**MARK, "ids": [1]}], [NAME, [MARK]],
    [NAME, {**MARK, "ph": "X"}], [without(NAME, "args")], [NAME, {**COUNTER, "args": {"low": math.nan}}],
    [NAME, {**COUNTER, "args": {"low": -math.inf}}],
    [NAME, BEGIN, {**BEGIN, "name": "copy"}, END, {**END, "name": "copy"}]])
def test_what_would_be_dropped_or_misread_is_found(bad):
    with pytest.raises(AssertionError):
        unmatched(bad)


@pytest.mark.parametrize("text", ["", "{}\n", '[\n{"name":1,"name":2},\n', "[\n{}\n{},\n"])
def test_other_files_are_no_traces(text):
    with pytest.raises(AssertionError):
        trace_format.check(trace_format.events_of(text))
