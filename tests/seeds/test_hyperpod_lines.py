# SPDX-License-Identifier: Apache-2.0
"""HyperPod's lines: memory at each save, storage where save_to_s3 says so, and a restart that goes on."""

import pytest

from harness import Job, run

NURSERY = "hyperpod_program"


def call(tmp_path, nursery, function, world, directory, **arguments):
    return run(tmp_path, f"hyperpod_program:{function}", nursery=nursery, world=world, directory=str(directory),
               **arguments)


@pytest.fixture
def whole(tmp_path, nursery):
    """The digest of a training that nothing disturbs; steps 3 and 6 are on storage, step 0 is not saved."""
    ranks = call(tmp_path, nursery, "train", 2, tmp_path / "whole", steps=7)
    assert ranks == [[ranks[0][0], None, ["v000000000003", "v000000000006"]]] * 2
    return ranks[0][0]


@pytest.mark.parametrize("functions, memory", [("torch", 0), ("tierckpt", 1)])
def test_killed_training_goes_on_with_equal_bits(tmp_path, nursery, monkeypatch, whole, functions, memory):
    monkeypatch.setenv("TRAINING_JOB_NAME", f"killed-{functions}")
    with Job(tmp_path, "hyperpod_program:train", nursery=nursery, world=2, directory=str(tmp_path / "runs"), steps=7,
             die_at=4, functions=functions) as job:
        job.killed()
    for digest, loaded, _ in call(tmp_path, nursery, "train", 2, tmp_path / "runs", begin=5, steps=7,
                                  functions=functions):
        assert (digest, loaded) == (whole, [4, memory])


def test_ranks_load_storage_after_the_agents_have_ended(tmp_path, job_site, nursery):
    ranks = call(tmp_path, nursery, "train", 2, tmp_path / "two", steps=4)
    job_site.kill_agents()
    assert call(tmp_path, nursery, "train", 2, tmp_path / "two", begin=4, steps=4, functions="tierckpt") \
        == [[digest, [3, 0], ["v000000000003"]] for digest, *_ in ranks]


def test_step_can_come_from_the_path_and_older_steps_are_loaded(tmp_path, nursery):
    for first, second, none, zero in call(tmp_path, nursery, "by_path", 2, tmp_path / "path"):
        assert (first, second) == (1, 2)
        assert "7" in none and "steps count from 1" in zero


def test_wrong_use_says_what_to_do(tmp_path, nursery):
    expected = ["namespace without has no storage", "namespace 'a/b' must have", "namespace larger has world_size",
                "the ranks have different namespaces, job-0, job-1", "the step is not known"]
    for texts, lines in call(tmp_path, nursery, "wrong", 2, tmp_path / "wrong"):
        assert len(texts) == len(expected)
        for text, words in zip(texts, expected, strict=True):
            assert words in text
        assert lines == ["step 0 of run is not saved: steps count from 1"]
