# SPDX-License-Identifier: Apache-2.0
"""Jobs of the tests whose ranks fail before they have joined each other are started again."""

import json
import os
import time
from pathlib import Path

import pytest

import harness


def run_job(out, rank_runs):
    """The exit codes of two ranks that run this function in place of a test's."""
    pid = os.fork()
    if pid == 0:
        harness._run_rank = rank_runs
        try:
            harness._run_job("module:function", 2, "{}", str(out))
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    return json.loads((out / "codes").read_text())


def joins_at(attempt_that_joins):
    def rank_runs(_target, rank, _world, _arguments, out, attempt):
        Path(out, f"began.{rank}.{attempt}").touch()
        if attempt == attempt_that_joins:
            harness._joined(out, rank).touch()
        elif rank == 1:
            while not Path(out, f"began.0.{attempt}").exists():
                time.sleep(0.01)
            raise RuntimeError("Gloo connectFullMesh failed")
        else:
            time.sleep(600)
    return rank_runs


@pytest.mark.parametrize("attempt", [0, 1, 2])
def test_ranks_that_fail_to_join_are_started_again(tmp_path, attempt):
    assert run_job(tmp_path, joins_at(attempt)) == [0, 0]
    assert len(list(tmp_path.glob("began.*"))) == 2 * (attempt + 1)


def test_ranks_that_never_join_fail(tmp_path):
    assert run_job(tmp_path, joins_at(None)) == [1, 1]


def test_a_rank_that_fails_after_all_have_joined_does_not_end_the_others(tmp_path):
    def rank_runs(_target, rank, _world, _arguments, out, _attempt):
        harness._joined(out, rank).touch()
        if rank == 1:
            raise RuntimeError("the test fails")
        time.sleep(0.5)
    assert run_job(tmp_path, rank_runs) == [0, 1]
    assert len(list(tmp_path.glob("joined.*"))) == 2
