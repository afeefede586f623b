# SPDX-License-Identifier: Apache-2.0
"""The checks of the demonstration: what it considers equal, what it counts, and that a killed node is really gone."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest


@pytest.fixture
def demo(top, monkeypatch):
    """The modules of deploy/demo that do not need torch."""
    monkeypatch.syspath_prepend(str(top / "deploy" / "demo"))
    import account
    import compare
    import events
    import network
    import parts

    import processes

    return SimpleNamespace(
        account=account, compare=compare, events=events, network=network, parts=parts, processes=processes
    )


class FakeRun:
    def __init__(self, found):
        self.events = found

    def of(self, kind, since=0.0):
        return [event for event in self.events if event["event"] == kind and event["at"] >= since]


def step(rank, number, loss, at=0.0, **more):
    return {"event": "step", "at": at, "rank": rank, "step": number, "loss": loss, "node": "n1", "pid": rank, **more}


def final(rank, parameters="p"):
    return {"event": "final", "at": 9.0, "rank": rank, "parameters": parameters, "optimizer": "o", "rng": "r"}


UNDISTURBED = [step(0, 1, "a"), step(0, 2, "b"), final(0)]


def differences(demo, found):
    return demo.compare.differences(FakeRun(found), demo.compare.outcome(FakeRun(UNDISTURBED)))


def test_a_run_that_repeats_steps_with_equal_losses_is_equal(demo):
    assert differences(demo, [step(0, 1, "a"), step(0, 2, "b"), step(0, 2, "b"), final(0)]) == []


def test_a_loss_that_differs_in_a_repeated_step_is_a_difference(demo):
    found = differences(demo, [step(0, 1, "a"), step(0, 2, "x"), step(0, 2, "b"), final(0)])
    assert len(found) == 1 and "step 2" in found[0]


def test_a_step_that_was_never_computed_is_a_difference(demo):
    assert differences(demo, [step(0, 1, "a"), final(0)]) == ["rank 0 never computed step 2"]


def test_other_final_parameters_are_a_difference(demo):
    assert differences(demo, [step(0, 1, "a"), step(0, 2, "b"), final(0, "x")]) == ["final parameters of rank 0 differ"]


def test_a_rank_that_did_not_reach_the_end_is_a_difference(demo):
    assert len(differences(demo, UNDISTURBED[:2])) == 3


def restored(rank):
    sources = {"local": 1, "twin": 2, "peer": 3, "storage": 0}
    return {"event": "restored", "at": 14.0, "rank": rank, "step": 6, "node": "n3", "seconds": 1.0, "sources": sources}


def recovered_run():
    """Step 6 is saved, the loss comes at 10.0 after step 7, the first new step is done at 15.5."""
    found = []
    for rank in range(4):
        counters = [(5, 0, 0, False), (6, 0, 0, True), (7, 2_000_000, 100, False)]
        for number, stall, copied, saved in counters:
            cost = {"seconds": 0.5, "save_seconds": 0.001, "saved": saved, "stall_ns": stall, "bytes_copied": copied}
            found.append(step(rank, number, "a", at=float(number), **cost))
        found.append({"event": "attached", "at": 12.0, "rank": rank, "seconds": 0.25})
        found.append(restored(rank))
        cost = {"seconds": 0.5, "save_seconds": 0.0, "saved": False, "stall_ns": 0, "bytes_copied": 0}
        found.append(step(rank, 7, "a", at=15.5, **{**cost, "pid": 10 + rank}))
    return FakeRun(found)


def take(demo, run):
    loss = demo.parts.Loss("n2", 10.0, 7, {rank: "n1" for rank in range(4)}, detected=10.5)
    return demo.account.take(demo.parts.PARTS[0], run, loss, {"step_ms": 400.0}, [])


def test_the_account_counts_what_was_lost_and_what_it_cost(demo):
    result = take(demo, recovered_run())
    assert (result["restored_step"], result["steps_lost"]) == (6, 1)
    assert result["sources"] == {"local": 4, "twin": 8, "peer": 12, "storage": 0}
    assert result["recovery_seconds"] == 5.5
    assert result["own_seconds"] == 0.5 + 0.25 + 1.0
    assert result["bytes_per_save"] == 400
    assert result["stall_ms_max"] == pytest.approx(3.0)
    assert json.loads(json.dumps(result))["bit_equal"] is True


def test_no_account_without_a_restore_on_every_rank(demo):
    run = recovered_run()
    run.events = [event for event in run.events if event["event"] != "restored" or event["rank"] != 3]
    with pytest.raises(Exception, match="3 of 4 ranks restored"):
        take(demo, run)


def test_half_a_line_of_a_killed_trainer_is_no_event(demo, tmp_path):
    (tmp_path / "n1.1.jsonl").write_text('{"at": 1, "event": "step"}\n{"at": 2, "ev')
    assert [event["at"] for event in demo.events.Reader(tmp_path).poll()] == [1]


def test_killing_a_node_reaches_processes_that_detached_from_it(demo, top, tmp_path):
    pid_file = tmp_path / "pid"
    detached = f"setsid sh -c 'echo $$ >{pid_file}; exec sleep 600' & exec sleep 600"
    node = subprocess.Popen([sys.executable, str(top / "deploy/demo/node_init.py"), "sh", "-c", f"({detached}) & wait"])
    while not pid_file.exists() or not pid_file.read_text().strip():
        time.sleep(0.01)
    pid = int(pid_file.read_text())
    assert demo.processes.kill_tree(node) >= 3
    assert not os.path.exists(f"/proc/{pid}") or not demo.processes.alive(pid)


def test_a_process_that_one_search_does_not_find_is_killed_too(demo, top, monkeypatch):
    node = subprocess.Popen([sys.executable, str(top / "deploy/demo/node_init.py"), "sleep", "600"])
    while not demo.processes.below(node.pid):
        time.sleep(0.01)
    (pid,) = demo.processes.below(node.pid)
    search = demo.processes.below
    searches = iter([lambda root: []])  # the first one comes while the process changes its parent
    monkeypatch.setattr(demo.processes, "below", lambda root: next(searches, search)(root))
    assert demo.processes.kill_tree(node) == 2
    assert not demo.processes.alive(pid)


def run_demonstration(top, *arguments):
    """Returns its exit status and output. It ends its nodes itself when it is interrupted."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, str(top / "deploy/demo"), *arguments], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, env=environment) as process:
        try:
            said, _ = process.communicate(timeout=900)
        except BaseException:
            process.send_signal(signal.SIGTERM)
            process.communicate()
            raise
    return process.returncode, said


def test_a_training_that_loses_a_node_goes_on_from_memory_with_equal_bits(top, tmp_path):
    report = tmp_path / "report.json"
    status, said = run_demonstration(top, "--part", "a", "--steps", "24", "--json", str(report))
    assert status == 0, said
    (part,) = json.loads(report.read_text())["parts"]
    assert part["bit_equal"] and part["restored_step"] > 0, said
    assert part["sources"]["storage"] == 0, "only memory had anything"


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True).stdout


def test_a_new_node_leaves_the_hubs_hardware_address_alone(demo):
    _, no_namespaces = demo.network.choose()
    if no_namespaces:
        pytest.skip(f"no network namespaces here: {no_namespaces}")
    network = demo.network.Namespaces()

    def hub_address():
        return json.loads(ip(*network.inside_hub(["ip", "-j", "link", "show", "br0"])[1:]))[0]["address"]

    try:
        before = hub_address()
        for number in range(6):
            network.add(f"n{number}")
            assert hub_address() == before, "nodes that know the former one do not reach the hub for a minute"
    finally:
        network.close()
