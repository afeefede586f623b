# SPDX-License-Identifier: Apache-2.0
"""The tutorial of torch.distributed.checkpoint: what is loaded is what was saved."""

import pytest

from harness import run

NURSERY = "dcp_program"


@pytest.fixture(scope="module")
def saved(tmp_path_factory, nursery):
    """Saved by two ranks: (directory, files, digest of model and optimizer, digest of the model)."""
    directory = tmp_path_factory.mktemp("saved")
    (files, state, model), other = run(directory, "dcp_program:save", nursery=nursery, world=2,
                                       directory=str(directory))
    assert other == [files, state, model]
    return directory, files, state, model


def test_checkpoint_is_a_directory_with_a_file_of_each_rank(saved):
    _, files, *_ = saved
    assert files[0] == "manifest.json" and len(files) == 3


def test_same_number_of_ranks_loads_from_memory(tmp_path, saved, nursery):
    directory, _, state, model = saved
    assert run(tmp_path, "dcp_program:load", nursery=nursery, world=2, directory=str(directory)) \
        == [[state, model, True]] * 2


@pytest.mark.parametrize("world", [2, 3])
def test_any_number_of_ranks_loads_after_the_agents_have_ended(tmp_path, job_site, saved, nursery, world):
    directory, _, state, model = saved
    job_site.kill_agents()
    assert run(tmp_path, "dcp_program:load", nursery=nursery, world=world, directory=str(directory)) \
        == [[state, model, False]] * world


def test_program_without_a_process_group_loads_the_model_alone(tmp_path, saved, nursery):
    directory, *_, model = saved
    assert run(tmp_path, "dcp_program:load_alone", nursery=nursery, directory=str(directory)) == [model]


def test_same_id_is_saved_again(tmp_path, nursery):
    first = run(tmp_path, "dcp_program:save", nursery=nursery, world=2, directory=str(tmp_path), seed=1)
    second = run(tmp_path, "dcp_program:save", nursery=nursery, world=2, directory=str(tmp_path), seed=2)
    assert first[0][1:] != second[0][1:]
    assert run(tmp_path, "dcp_program:load", nursery=nursery, world=2, directory=str(tmp_path)) \
        == [[*second[0][1:], True]] * 2
