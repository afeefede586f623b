# SPDX-License-Identifier: Apache-2.0
"""veScale's lines: what is loaded is what was saved, in any sharding, with and without its options."""

import pytest

from harness import Job, run

NURSERY = "vescale_program"


def call(tmp_path, nursery, function, world, path, **arguments):
    return run(tmp_path, f"vescale_program:{function}", nursery=nursery, world=world, path=str(path), **arguments)


@pytest.fixture(scope="module")
def saved(tmp_path_factory, nursery):
    """Saved by four ranks: path and digest."""
    directory = tmp_path_factory.mktemp("saved")
    ranks = call(directory, nursery, "save", 4, directory / "gpt")
    digest, files = ranks[0]
    assert ranks == [[digest, files]] * 4 and "manifest.json" in files
    return directory / "gpt", digest


def test_same_number_of_ranks_loads_from_memory(tmp_path, saved, nursery):
    path, digest = saved
    assert call(tmp_path, nursery, "load", 4, path, broadcast_checkpoint=True) == [[digest, 0, True]] * 4


@pytest.mark.parametrize("world", [2, 4])
def test_any_number_of_ranks_loads_the_directory(tmp_path, job_site, saved, nursery, world):
    path, digest = saved
    job_site.kill_agents()
    ranks = call(tmp_path, nursery, "load", world, path)
    assert [(loaded, memory) for loaded, _, memory in ranks] == [(digest, False)] * world
    assert all(reads > 0 for _, reads, _ in ranks)


@pytest.mark.parametrize("world", [2, 4])
def test_broadcast_load_reads_each_part_once(tmp_path, job_site, saved, nursery, world):
    """Of the ranks 0 and 2, and of 1 and 3, which are replicas, the first one reads."""
    path, digest = saved
    job_site.kill_agents()
    ranks = call(tmp_path, nursery, "load", world, path, broadcast_checkpoint=True)
    assert [loaded for loaded, *_ in ranks] == [digest] * world
    assert [reads > 0 for _, reads, _ in ranks] == [rank < 2 for rank in range(world)]


def test_asynchronous_save_has_the_state_of_its_call(tmp_path, job_site, nursery):
    digest, files = call(tmp_path, nursery, "save", 2, tmp_path / "gpt", async_checkpoint=True)[0]
    assert "manifest.json" in files
    job_site.kill_agents()
    assert [loaded for loaded, *_ in call(tmp_path, nursery, "load", 4, tmp_path / "gpt")] == [digest] * 4


def test_killed_training_goes_on_with_equal_bits(tmp_path, nursery):
    whole = call(tmp_path, nursery, "train", 2, tmp_path / "whole", steps=4)
    with Job(tmp_path, "vescale_program:train", nursery=nursery, world=2, path=str(tmp_path / "gpt"), steps=4,
             die_at=2) as job:
        job.killed()
    assert call(tmp_path, nursery, "train", 2, tmp_path / "gpt", steps=4, first=3) == whole


def test_failed_asynchronous_save_is_logged(tmp_path, nursery):
    fault, lines = call(tmp_path, nursery, "failing", 1, tmp_path / "gpt")[0]
    assert "the disk is gone" in fault
    assert len(lines) == 1 and lines[0].startswith(f"{tmp_path / 'gpt'} was not saved: ")


def test_wrong_use_says_what_to_do(tmp_path, nursery):
    texts, = call(tmp_path, nursery, "wrong", 1, tmp_path / "gpt")
    expected = ["checkpoint_state has 'step': give {\"model\"", "checkpoint_state has no model: give",
                "optimizer is a object, whose parts", "model.table is a vescale_program.Foreign, and only DTensors",
                "nothing was saved as"]
    assert len(texts) == len(expected)
    for text, begin in zip(texts, expected, strict=True):
        assert text.startswith(begin), text
