# SPDX-License-Identifier: Apache-2.0
"""bench/run PEERS: its rows, goals and drawing from made-up rounds, the order of the ways, what memory and writing are
counted, and which Python runs it. Nothing is installed and no way is run."""

import contextlib
import json
import mmap
import os
import subprocess
import sys
import threading
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import SimpleNamespace

import pytest

MIB = 1 << 20


@pytest.fixture
def peers(top, monkeypatch):
    """The modules in bench/peers, by name."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", [str(top / "bench/peers"), str(top / "bench"), *sys.path])
    loaded = {}
    for name in ("agent", "usage", "figures", "run"):
        loader = SourceFileLoader(name, str(top / f"bench/peers/{name}.py"))
        module = module_from_spec(spec_from_loader(name, loader))
        monkeypatch.setitem(sys.modules, name, module)
        loader.exec_module(module)
        loaded[name] = module
    return SimpleNamespace(**loaded)


@pytest.fixture
def ways(top, peers):
    """The module of this name, which needs torch."""
    pytest.importorskip("torch")
    loader = SourceFileLoader("ways", str(top / "bench/peers/ways.py"))
    module = module_from_spec(spec_from_loader("ways", loader))
    loader.exec_module(module)
    return module


def made_up(stall, first, done, durable, copy=0.1, memory=1.0, written=1.0):
    return {"copy": copy, "first": first, "stall": stall, "done": done, "durable": durable, "memory": memory,
            "written": written, "complete": "written"}


def found():
    """Two rounds of each way."""
    durable = [None, None]
    return {
        "torch.save": [made_up([0.8, 1.0], 0.9, [0.8, 1.0], [2.0, 2.0]),
                       made_up([1.0, 1.0], 1.1, [1.0, 1.0], [2.0, 2.0])],
        "dcp.async.shared": [made_up([0.2, 0.2], 2.0, [3.0, 3.0], [3.0, 3.0])] * 2,
        "torch_checkpointing": [made_up([0.01, 0.01], 3.0, [1.5, 1.5], [1.8, 1.8])] * 2,
        "tierckpt": [made_up([0.1, 0.1], 0.1, [0.3, 0.3], durable)] * 2,
        "tierckpt.storage": [made_up([0.1, 0.1], 0.1, [0.3, 0.3], [0.9, 0.9])] * 2,
        "tierckpt.overlapped": [made_up([0.004, 0.004], 0.004, [0.4, 0.4], durable)] * 2,
    }


def test_times_of_all_ways_are_multiples_of_one_copy(peers):
    ways = {"dcp.save": [made_up([0.2, 0.4], 1.0, [1.0, 1.0], [2.0, 2.0], copy=0.4),
                         made_up([0.8], 3.0, [2.0], [4.0], copy=0.2)],
            "torch.save": [made_up([0.8], 1.0, [1.0], [1.0], copy=0.2)] * 2,
            "tierckpt": [made_up([0.1], 0.1, [0.1], [None], copy=0.1)] * 2}  # the median of 0.3, 0.2 and 0.1 is 0.2
    rows = {row["kind"]: row for row in peers.figures.rows("PEERS", "dcp.save", ways)}
    assert list(rows) == ["first", "stall", "done", "durable", "memory", "written"]
    assert (rows["stall"]["value"], rows["stall"]["rounds"]) == (2.75, 3)  # 0.3 and 0.8 in the rounds' medians
    assert rows["first"]["value"] == 10
    assert rows["done"]["what"] == "dcp.save: until written"
    assert (rows["durable"]["reference_value"], rows["durable"]["own_copy"]) == (200, 0.3)
    assert rows["memory"]["value"] == 1.0


def test_a_goal_is_the_quotient_of_two_rows(peers):
    ways = {**found(), "tierckpt": [made_up([0.1, 0.1], 0.1, [0.3, 0.3], [None, None], copy=0.17)] * 2}
    rows = {row["id"].removeprefix("PEERS."): row["value"]
            for name in ways for row in peers.figures.rows("PEERS", name, ways)}
    for goal in peers.figures.goals("PEERS", ways):
        ours, kind = next(of[1:3] for of in peers.figures.GOALS if goal["id"] == f"PEERS.goal.{of[0]}")
        assert goal["value"] == pytest.approx(rows[f"{ours}.{kind}"] / rows[f"{goal['reference']}.{kind}"], rel=1e-3)


@pytest.mark.parametrize(("memory", "met"), [(5.3, True), (5.4, False)])
def test_only_the_memory_of_ours_has_a_goal_of_its_own(peers, memory, met):
    ways = {**found(), "tierckpt": [made_up([0.1], 0.1, [0.3], [None], memory=memory)] * 2}
    of = {name: {row["kind"]: row for row in peers.figures.rows("PEERS", name, ways)} for name in ways}
    assert (of["tierckpt"]["memory"]["goal"], of["tierckpt"]["memory"]["met"]) == (5.3, met)
    assert "goal" not in of["tierckpt"]["written"]
    assert "goal" not in of["torch.save"]["memory"]


def test_a_way_that_is_never_on_storage_has_no_such_row(peers):
    rows = peers.figures.rows("PEERS", "tierckpt", found())
    assert "durable" not in [row["kind"] for row in rows]


def test_each_goal_compares_with_the_best_peer_of_its_kind(peers):
    rows = {row["id"].removeprefix("PEERS.goal."): row for row in peers.figures.goals("PEERS", found())}
    assert {id: (row["reference"], row["value"], row["met"]) for id, row in rows.items()} == {
        "stall": ("dcp.async.shared", 0.5, True),
        "stall.all": ("torch_checkpointing", 10.0, False),
        "overlapped": ("dcp.async.shared", 0.02, False),
        "overlapped.all": ("torch_checkpointing", 0.4, False),
        "overlapped.both": ("torch_checkpointing", 0.4, True),
        "first": ("torch.save", 0.1, True),
        "first.overlapped": ("torch.save", 0.004, True),
        "durable": ("torch_checkpointing", 0.5, True),
    }
    assert rows["stall"]["goal"] == 0.85 and rows["overlapped"]["goal"] == 0.01


def test_a_goal_without_ours_or_without_peers_is_left_out(peers):
    ways = found()
    ours = {name: rounds for name, rounds in ways.items() if name.startswith("tierckpt")}
    assert peers.figures.goals("PEERS", ours) == []
    assert peers.figures.goals("PEERS", {"torch.save": ways["torch.save"]}) == []


def test_a_way_that_failed_is_an_error_and_the_others_are_reported(peers, capsys):
    rows = peers.run.report("PEERS", {"dcp.save": "OSError: no space", **found()})
    assert [row for row in rows if "error" in row] == [{"id": "PEERS.dcp.save", "error": "OSError: no space"}]
    assert len(capsys.readouterr().out.splitlines()) == len(rows)


def test_the_table_shows_goals_as_met_or_not(peers, top, capsys):
    loader = SourceFileLoader("bench_run", str(top / "bench/run"))
    bench = module_from_spec(spec_from_loader("bench_run", loader))
    loader.exec_module(bench)
    rows = peers.figures.rows("PEERS", "torch.save", found()) + peers.figures.goals("PEERS", found())
    for row in rows:
        bench.print_row(row)
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert " yes " in lines["PEERS.goal.stall"] and "<= 0.85" in lines["PEERS.goal.stall"]
    assert " no " in lines["PEERS.goal.overlapped"]
    assert "x the state" in lines["PEERS.torch.save.memory"]


def test_the_ways_take_turns(peers):
    names = ["a", "b", "c"]
    assert [peers.run.order(names, number) for number in range(3)] == [
        ["a", "b", "c"], ["a", "c", "b"], ["c", "a", "b"]]


def test_a_way_that_failed_is_not_tried_again(peers, monkeypatch):
    tried = []

    def one_round(name, _):
        tried.append(name)
        return "it failed" if name == "a" else {}

    monkeypatch.setattr(peers.run, "one_round", one_round)
    assert peers.run.measure(["a", "b"], SimpleNamespace(rounds=2)) == {"a": "it failed", "b": [{}, {}]}
    assert tried == ["a", "b", "b"]


def test_every_way_is_drawn_in_the_order_of_the_rows(peers, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    import draw
    drawn = []
    monkeypatch.setattr(draw.plt, "close", drawn.append)
    rows = [row for name in found() for row in peers.figures.rows("PEERS", name, found())]
    peers.run.draw(rows, tmp_path / "peers.svg")
    assert all(name in (tmp_path / "peers.svg").read_text(encoding="utf-8") for name in found())
    for axis in drawn[0].axes:
        assert [label.get_text() for label in axis.get_yticklabels()] in ([], list(found()))
        assert axis.yaxis_inverted()  # the first is at the top


def test_result_of_goodput_is_drawn(top, tmp_path):
    pytest.importorskip("matplotlib")
    rows = [{"id": f"GOODPUT.{way}", "way": way, "goodput": 0.5, "lost": 3, "recovery": 2.5}
            for way in ("torch.save", "tierckpt")] + [{"id": "GOODPUT.lm-resiliency", "skipped": "it is not here"}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    plot = [sys.executable, str(top / "bench/goodput/plot.py"), "rows.jsonl", "out.svg"]
    subprocess.run(plot, cwd=tmp_path, check=True)
    drawn = (tmp_path / "out.svg").read_text(encoding="utf-8")
    assert "tierckpt" in drawn and "lm-resiliency" not in drawn


def test_memory_counts_shared_memory_once_also_if_nothing_maps_it(peers):
    before = peers.usage.memory({os.getpid()})
    descriptor = os.memfd_create("counted")
    try:
        os.posix_fallocate(descriptor, 0, 64 * MIB)
        assert 60 * MIB <= peers.usage.memory({os.getpid()}) - before <= 72 * MIB
        with mmap.mmap(descriptor, 64 * MIB) as mapped:
            mapped.write(bytes(64 * MIB))
            assert 60 * MIB <= peers.usage.memory({os.getpid()}) - before <= 72 * MIB
    finally:
        os.close(descriptor)


def test_children_of_children_count(peers):
    with subprocess.Popen(["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True) as shell:
        child = int(shell.stdout.readline())
        try:
            assert {os.getpid(), shell.pid, child} <= peers.usage.with_children({os.getpid()})
            assert peers.usage.with_children({child}) == {child}
        finally:
            os.kill(child, 9)


def test_writing_counts_what_is_still_in_the_page_cache(peers, tmp_path):
    before = peers.usage.written({os.getpid()})
    (tmp_path / "file").write_bytes(bytes(4 * MIB))
    after = peers.usage.written({os.getpid()})
    if after == before:
        pytest.skip("the temporary directory is in memory")
    assert after - before >= 4 * MIB


def test_what_a_process_says_is_put_together_with_what_was_looked_at(peers, monkeypatch):
    memory, written = iter([100, 350, 300]), iter([10, 60])
    monkeypatch.setattr(peers.usage, "memory", lambda _: next(memory))
    monkeypatch.setattr(peers.usage, "written", lambda _: next(written))
    monkeypatch.setattr(peers.usage, "INTERVAL_S", 60)  # it looks only at the end
    script = ('for moment in start before after; do echo "{\\"at\\": \\"$moment\\"}"; read line; done; '
              'echo noise; echo "{\\"copy\\": 1.0}"')
    with subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert peers.run.follow(process, lambda: set(), 50) == {"copy": 1.0, "memory": 5.0, "written": 1.0}


@pytest.mark.parametrize("answer", ["read line", "exec <&-"])
def test_a_process_that_ends_during_the_last_save_is_watched_no_longer(peers, monkeypatch, answer):
    monkeypatch.setattr(peers.usage, "memory", lambda _: 0)
    threads = set(threading.enumerate())
    script = f'echo "{{\\"at\\": \\"start\\"}}"; read line; echo "{{\\"at\\": \\"before\\"}}"; {answer}'
    process = subprocess.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert peers.run.follow(process, set, 50) is None
        assert set(threading.enumerate()) == threads
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        with contextlib.suppress(BrokenPipeError):  # what it has not read
            process.stdin.close()


def test_what_lm_resiliency_has_written_is_synced_by_the_benchmark(ways, tmp_path, monkeypatch):
    step = tmp_path / "run/step-3"
    step.mkdir(parents=True)
    (step / "rank-0.pt").write_bytes(b"shard")
    calls, synced = [], []
    monkeypatch.setattr(ways, "sync", lambda path: synced.append(os.fspath(path)))
    disk = SimpleNamespace(wait=lambda: calls.append("wait"), _folder=tmp_path / "run")
    way = object.__new__(ways.LmResiliency)
    way._manager = SimpleNamespace(flush_to_disk=lambda number: calls.append(number), _disk=disk)
    way.ranks = SimpleNamespace(meet=lambda: calls.append(len(synced)))
    assert way.make_durable(3)
    assert calls == [3, "wait", 0, 2]  # the files of all ranks are complete before they are synced
    assert synced == [str(step), str(step / "rank-0.pt")]
