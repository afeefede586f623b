"""The campaign's own judgement: what it must find, and what it must not excuse."""

import argparse
import json
import socket
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE.parent / "lib"), str(HERE.parent / "soak")]

from botocore.exceptions import EndpointConnectionError  # noqa: E402
from bucket_story import HELD, BucketStory, has_reason  # noqa: E402
from bucket_watch import LEAST_LOOKS, Bucket, Watch, lacking  # noqa: E402
from job import Launch  # noqa: E402
from job_story import JobStory  # noqa: E402
from proxy import Proxy  # noqa: E402
from seeded import ENOUGH, Broken, Suite  # noqa: E402

KEY = "v000000000010.t1/manifest.json"
WHOLE = json.dumps({"files": [{"name": "shard", "bytes": 3}]})


class Seen:
    """A bucket that is seen as `half` says."""

    def __init__(self, half):
        self.half = half


def watch(half):
    watched = Watch(Seen(half))
    watched.over.set()
    watched.join()
    return watched


def unreachable():
    raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1")


@pytest.mark.parametrize("text", ["", WHOLE[:-4], "[]", "{}", json.dumps({"files": [{"name": "shard"}]})])
def test_a_manifest_that_cannot_be_parsed_is_found(text):
    assert "cannot be parsed" in lacking(KEY, text, {})[0]


def test_a_file_that_lacks_is_found():
    assert lacking(KEY, WHOLE, {"v000000000010.t1/shard": 3}) == []
    assert len(lacking(KEY, WHOLE, {"v000000000010.t1/shard": 2})) == len(lacking(KEY, WHOLE, {})) == 1


@pytest.mark.parametrize("half", [unreachable, lambda: {}["files"], lambda: json.loads("{")])
def test_a_watch_that_cannot_look_is_a_fault(half):
    watched = Watch(Seen(half))
    watched.join(30)
    assert watched.fault
    with pytest.raises(Broken, match="not watched any more"):
        watched.judge()


def test_while_the_server_is_down_a_look_may_fail():
    watched = watch(unreachable)
    with watched.server_down():
        watched.look()
    watched.judge()
    assert watched.looks == 0
    with pytest.raises(EndpointConnectionError):
        watched.look()


def test_a_watch_with_few_looks_has_not_judged():
    watched = watch(set)
    for _ in range(LEAST_LOOKS - watched.looks - 1):
        watched.look()
    with pytest.raises(Broken, match="times in the whole run"):
        watched.judge_all()
    watched.look()
    watched.judge_all()


def test_each_failed_rank_gives_a_reason():
    bucket = "s3://bucket/a"
    assert has_reason([f"ERROR attach: {bucket} x", "ERROR attach: rank 0: y", 5], bucket)
    assert not has_reason([f"ERROR attach: {bucket} x", "ERROR attach: y"], bucket)
    assert not has_reason(["ERROR attach: rank 1: x", "ERROR attach: rank 0: y"], bucket)
    assert has_reason(["ERROR attach: job a is held by a start whose trainers are alive: rank 0"], HELD)


def test_a_trainer_that_ends_without_an_answer_is_never_excused(tmp_path):
    class Ended:
        def poll(self):
            return -11

    output = tmp_path / "out"
    output.write_text("the last line", encoding="utf-8")
    with pytest.raises(Broken, match="ended with -11 and without an answer: 'the last line'"):
        JobStory.judge_silent(Launch(1, [Ended()], [output]))


def test_a_pause_is_held_and_is_no_fault():
    proxy = Proxy(1)  # nothing is forwarded
    try:
        proxy.fault("pause", "GET", seconds=0)
        assert proxy.take_fault("GET", "/").kind == "pause"
        assert (proxy.held, proxy.done) == (1, [])
        proxy.release()
        assert proxy.held == 0
    finally:
        proxy.close()


def test_a_request_whose_sender_ends_meets_no_fault():
    proxy = Proxy(1)
    try:
        proxy.fault("hang", "PUT", seconds=0)
        with socket.create_connection(proxy.server.server_address) as sock:
            sock.sendall(b"PUT /bucket/a HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf")
            sock.shutdown(socket.SHUT_WR)
            assert sock.recv(1) == b""
        assert (proxy.held, proxy.done) == (0, [])
    finally:
        proxy.close()


class Story:
    figures = {"kills": 0}

    def __init__(self, *_):
        pass

    def tell(self):
        pass

    def close(self):
        pass


class Unclosed(Story):
    def close(self):
        raise TimeoutError("these processes are alive")


def run(story, tmp_path, count):
    options = argparse.Namespace(build=tmp_path, seed=1, count=count, jobs=1, verbose=False)
    return Suite("suite", story, needed=("kills",)).run(options)


def test_enough_runs_without_a_kill_are_a_failure(tmp_path, capsys):
    assert run(Story, tmp_path, ENOUGH - 1) == 0
    assert run(Story, tmp_path, ENOUGH) == 1
    assert "no kills in" in capsys.readouterr().out


def test_a_run_that_cannot_be_closed_is_broken(tmp_path, capsys):
    assert run(Unclosed, tmp_path, 1) == 1
    assert "seed 1: BROKEN" in (out := capsys.readouterr().out) and "these processes are alive" in out


def test_a_set_up_that_fails_is_a_broken_run_and_leaves_no_server(tmp_path, capsys, monkeypatch):
    def fail(_):
        raise OSError("no bucket can be made")

    stories = []

    def story(*arguments):
        stories.append(BucketStory(*arguments))
        return stories[-1]

    monkeypatch.setattr(Bucket, "make", fail)
    assert run(story, tmp_path, 2) == 1
    out = capsys.readouterr().out
    assert "seed 1: BROKEN" in out and "seed 2: BROKEN" in out and "no bucket can be made" in out
    assert all(story.server.process.poll() is not None for story in stories)
