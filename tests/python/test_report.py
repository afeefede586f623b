# SPDX-License-Identifier: Apache-2.0
"""The page of a run: what it finds in traces, and that it opens by itself."""

import json
import re
import shutil
import subprocess

import pytest

from tierckpt import errors
from tierckpt.report import command, traces
from tierckpt.report.run import lost_with_interval, quantile, run_of

PIDS = {"a": 1, "b": 2}


class Trace:
    """Lines of the trace of one node."""

    def __init__(self, node):
        self.node, self.lines = node, [{"name": "process_name", "ph": "M", "pid": PIDS[node], "tid": 0,
                                        "args": {"name": node}}]
        self.pid = PIDS[node]

    def add(self, at, name, phase="i", term=1, step=0, **args):
        self.lines.append({"name": name, "cat": "version", "ph": phase, "ts": round(at * 1e6), "pid": self.pid,
                           "tid": 0, "id": f"{name} {term}.{step}", "args": {"term": term, "step": step, **args}})

    def counter(self, at, name, value):
        self.lines.append({"name": name, "cat": "version", "ph": "C", "ts": round(at * 1e6), "pid": self.pid,
                           "tid": 0, "args": {"value": value}})

    def arrival(self, at, name, shard, source, size, step=30, in_term=2):
        self.add(at, name, step=step, shard=shard, source=source, bytes=size, in_term=in_term)

    def step_cost(self, at, quiet_us, low, mean, high):
        self.lines.append({"name": "step inflation", "cat": "version", "ph": "C", "ts": round(at * 1e6),
                           "pid": self.pid, "tid": 0, "args": {"low": low, "mean": mean, "high": high, "target": 0.01,
                                                               "quiet us": quiet_us}})

    def span(self, begin, end, name, term, step, ok=True):
        self.add(begin, name, "b", term, step)
        self.add(end, name, "e", term, step, ok=ok)

    def version(self, at, term, step, published=False):
        self.span(at, at + 0.01, "save", term, step)
        self.span(at + 0.01, at + 0.03, "copy", term, step)
        self.add(at + 0.05, "committed", term=term, step=step)
        if published:
            self.span(at + 0.06, at + 0.26, "drain", term, step)
            self.add(at + 0.3, "published", term=term, step=step)

    def write(self, directory, job="a.job", torn=""):
        path = directory / f"{job}.{self.node}.trace.json"
        path.write_text("[\n" + "".join(json.dumps(line) + ",\n" for line in self.lines) + torn)
        return path


def two_starts():
    """Node b is lost after step 37 was trained, 30 committed and 20 published; the next start goes on from 30."""
    a, b = Trace("a"), Trace("b")
    for trace in (a, b):
        trace.add(0, "term", term=1)
        trace.add(0.1, "restored nothing", term=0)
        for step in (10, 20, 30):
            trace.version(step, 1, step, published=step == 20)
            trace.counter(step + 0.5, "step", step)
            trace.counter(step + 0.5, "stalls", step // 10)
            trace.counter(step + 0.5, "stall us", 2000 * step // 10)
    a.counter(37, "step", 37)
    a.span(38, 38.1, "copy", 1, 40, ok=False)
    a.add(40, "node lost", term=1, node="b")
    a.add(50, "term", term=2)
    a.add(51, "restored", term=1, step=30)
    a.add(52, "recovered", term=2)
    a.arrival(50.5, "fetched", 0, "local", 3 << 30)
    a.arrival(50.7, "fetched", 1, "peer", 1 << 20)
    b.arrival(50.6, "fetched", 0, "twin", 3 << 30)
    b.arrival(50.8, "fetched", 1, "storage", 1 << 20)
    for trace, mean in ((a, 0.004), (b, 0.02)):
        trace.step_cost(15, 99000, -0.01, 0.01, 0.03)
        trace.step_cost(25, 100000, mean - 0.003, mean, mean + 0.003)
    a.version(60, 2, 40)
    return a, b


def test_restart_says_what_was_lost_and_what_other_intervals_would_have_lost(tmp_path):
    run = run_of(traces.read([trace.write(tmp_path) for trace in two_starts()]))
    assert list(run.nodes) == ["a", "b"] and (run.begin, run.end) == (0, 60.05)
    first, second = run.starts
    assert (first.reached, first.restored, first.steps_lost, first.lost) == (0, 0, 0, ())
    assert run.restarts == [second] and second.lost == ("b",)
    assert (second.reached, second.restored, second.steps_lost) == (37, 30, 7)
    assert (second.restored_at, second.recovered_at) == (51, 52)
    assert (second.committed, second.published) == (30, 20)
    assert [lost_with_interval(second, interval) for interval in (1, 10, 100)] == [0, 7, 37]


def test_recovery_has_the_sources_of_its_shards(tmp_path):
    a, b = two_starts()
    b.arrival(50.9, "fetched", 1, "local", 1 << 20)  # asked for again
    b.arrival(53, "repaired", 7, "peer", 1 << 20)
    a.arrival(0.1, "fetched", 0, "storage", 5, step=0, in_term=1)
    run = run_of(traces.read([trace.write(tmp_path) for trace in (a, b)]))
    first, second = run.recoveries
    assert first.term == 1 and first.fetched == {"storage": (1, 5)}
    assert second.fetched == {"local": (1, 3 << 30), "twin": (1, 3 << 30), "peer": (1, 1 << 20),
                              "storage": (1, 1 << 20)}


def test_shards_of_a_version_that_was_given_up_do_not_count(tmp_path):
    a, b = two_starts()
    b.arrival(50.9, "fetched", 1, "peer", 1 << 20, step=20)
    run = run_of(traces.read([trace.write(tmp_path) for trace in (a, b)]))
    assert run.recoveries[0].fetched["peer"] == (2, 2 << 20) and "storage" not in run.recoveries[0].fetched


def test_run_without_arrivals_has_no_recovery_to_show(tmp_path):
    a, _ = two_starts()
    a.lines = [line for line in a.lines if line["name"] not in ("fetched", "step inflation")]
    run = run_of(traces.read([a.write(tmp_path)]))
    assert run.recoveries == [] and run.step_costs == {} and len(run.restarts) == 1


def test_step_costs_are_the_estimates_of_each_node(tmp_path):
    run = run_of(traces.read([trace.write(tmp_path) for trace in two_starts()]))
    assert sorted(run.step_costs) == ["a", "b"]
    early, late = run.step_costs["b"]
    assert (early.at, late.at) == (15, 25) and late.quiet_ms == 100 and late.busy_ms == pytest.approx(102)
    assert (late.low, late.mean, late.high, late.target) == pytest.approx((0.017, 0.02, 0.023, 0.01))


def test_versions_have_their_stages_and_the_slowest_nodes_times(tmp_path):
    a, b = two_starts()
    a.span(10.01, 10.02, "digest", 1, 10)
    b.span(10.01, 10.5, "digest", 1, 10)
    run = run_of(traces.read([a.write(tmp_path), b.write(tmp_path)]))
    assert [(version.term, version.step) for version in run.versions] == [(1, 10), (1, 20), (1, 30), (2, 40)]
    assert run.versions[0].seconds["digest"] == pytest.approx(0.49)
    assert [version.published is not None for version in run.versions] == [False, True, False, False]
    assert run.longest_without_commit() == pytest.approx(10)
    assert [round(ms, 3) for _, ms in run.stalls_ms] == [2.0] * 6


def test_stalls_after_an_agent_was_started_again_are_those_of_its_own_saves(tmp_path):
    a, _ = two_starts()
    for at, count in ((55, 0), (60.5, 1), (61.5, 3)):
        a.counter(at, "stalls", count)
        a.counter(at, "stall us", 5000 * count)
    run = run_of(traces.read([a.write(tmp_path)]))
    assert [round(ms, 3) for _, ms in run.stalls_ms] == [2.0] * 3 + [5.0] * 2


def test_quantile():
    assert quantile([], 0.5) is None and quantile([3], 0.99) == 3
    assert quantile(list(range(101)), 0.5) == 50 and quantile(list(range(101)), 0.99) == 99


def test_line_that_is_being_written_is_left_out(tmp_path):
    a, _ = two_starts()
    whole = traces.read([a.write(tmp_path)])
    assert traces.read([a.write(tmp_path, torn='{"name":"sav')]) == whole


@pytest.mark.parametrize("text", ["{}", "[\n{\"name\":1},\n", "[\n{\"ph\":\"i\",\"pid\":1},\n", "\x00,\n"])
def test_other_files_are_refused_by_name(tmp_path, text):
    path = tmp_path / "x.trace.json"
    path.write_text(text)
    if text == "{}":  # no whole line, as at the very beginning
        assert traces.read([path]) == []
        return
    with pytest.raises(errors.CorruptError, match="x.trace.json is no trace of an agent"):
        traces.read([path])


def told(capsys, *arguments):
    """The exit status, and what was printed to stderr."""
    return command.main([str(argument) for argument in arguments]), capsys.readouterr().err


def test_wrong_use_says_what_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("TIERCKPT_CONFIG", raising=False)
    page = tmp_path / "run.html"
    assert told(capsys, page) == (1, "tierckpt report: there is no trace: name the files, or a configuration with "
                                     "trace_dir (--config, TIERCKPT_CONFIG)\n")
    (tmp_path / "none").mkdir()
    status, text = told(capsys, page, tmp_path / "none")
    assert status == 1 and "has no file *.trace.json: set trace_dir" in text
    a, b = two_starts()
    a.write(tmp_path / "none", job="one")
    b.write(tmp_path / "none", job="two")
    status, text = told(capsys, page, tmp_path / "none")
    assert status == 1 and "several jobs, one, two" in text
    status, text = told(capsys, page, tmp_path / "away.json")
    assert status == 1 and "away.json: No such file" in text


@pytest.fixture
def made(tmp_path, capsys):
    """The page of a job whose node has a name with markup in it."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    a, b = two_starts()
    a.lines[0]["args"]["name"] = a.node = "<i>a<i>"
    (tmp_path / "traces").mkdir()
    for trace in (a, b):
        trace.write(tmp_path / "traces")
    (tmp_path / "job.json").write_text(json.dumps({"save_dir": "/s", "trace_dir": "traces"}))
    assert told(capsys, tmp_path / "run.html", "--config", tmp_path / "job.json") == (0, "")
    return tmp_path / "run.html"


def test_page_needs_nothing_else_and_escapes_names(made):
    text = made.read_text()
    assert "<title>Run of a.job</title>" in text and text.count("<svg") == 6
    assert "&lt;i&gt;a&lt;i&gt;" in text and "<i>" not in text
    outside = {url for url in re.findall(r"""(?:src|href)=["']([^"']+)""", text) if not url.startswith("#")}
    assert not outside and "<script" not in text
    for value in ("37", "30", "7"):
        assert f">{value}<" in text
    for value in ("3.0 GiB (1 shard)", "1.0 MiB (1 shard)", "2.00 %", "1.70 to 2.30 %", "100 ms", "102 ms"):
        assert f">{value}<" in text
    assert text.index("2.00 %") < text.index("0.40 %"), "the node with the highest cost comes first"
    assert "the table has" not in text


def test_page_says_what_it_lacks(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    a, _ = two_starts()
    a.lines = [line for line in a.lines if line["name"] not in ("fetched", "step inflation")]
    assert told(capsys, tmp_path / "run.html", a.write(tmp_path)) == (0, "")
    text = (tmp_path / "run.html").read_text()
    assert "No agent has fetched a shard" in text and "It was not measured." in text


def test_page_says_how_many_nodes_its_table_of_costs_leaves_out(tmp_path, capsys):
    pytest.importorskip("matplotlib")
    pytest.importorskip("jinja2")
    files = []
    for number in range(10):
        trace = Trace("a")
        trace.lines[0]["args"]["name"] = trace.node = f"n{number}"
        trace.pid = trace.lines[0]["pid"] = number + 1
        trace.add(0, "term", term=1)
        trace.step_cost(15, 99000, 0, 0.01 * number, 0.2)
        files.append(trace.write(tmp_path))
    assert told(capsys, tmp_path / "run.html", *files) == (0, "")
    text = " ".join((tmp_path / "run.html").read_text().split())
    assert "the table has 8 of 10 nodes, the chart all of them" in text
    assert "<td>n2</td>" in text and "<td>n1</td>" not in text


@pytest.mark.parametrize("value, text", [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1536, "1.5 KiB"),
                                         (2**20 - 1, "1.0 MiB"), (2**50, "1024.0 TiB")])
def test_bytes_have_a_unit_of_which_there_are_less_than_1024(value, text):
    pytest.importorskip("matplotlib")
    page = pytest.importorskip("tierckpt.report.page", exc_type=ImportError)
    assert page._bytes(value) == text


def test_browser_shows_it(made):
    browser = shutil.which("chromium")
    if browser is None:
        pytest.skip("chromium is not installed")
    shown = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", made.as_uri()],
                           capture_output=True, text=True, timeout=120, check=True).stdout
    assert "Losses and recoveries" in shown and shown.count("<svg") == 6 and "steps lost" in shown
    assert "Sources of recoveries" in shown and "Step time with and without copies" in shown
