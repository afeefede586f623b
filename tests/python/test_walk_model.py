# SPDX-License-Identifier: Apache-2.0
import pytest
import torch
from torch import nn

from tierckpt import PRIVATE, UnsupportedError
from tierckpt.state import groups, walk_model
from tierckpt.state.sharding import Placer

ALONE = Placer(0, groups.of_ranks([0]))


def parameter_keys(model):
    return [record.key for record in walk_model.parameter_records(walk_model.unwrap(model), ALONE)]


def buffer_keys(model):
    return [record.key for record in walk_model.buffer_records(walk_model.unwrap(model), ALONE)]


def test_names_are_those_of_state_dict():
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    assert sorted(parameter_keys(model) + buffer_keys(model)) == sorted(model.state_dict())


def test_tied_parameter_is_walked_once():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    assert parameter_keys(model) == ["0.weight"]


def test_non_persistent_buffer_is_not_saved():
    model = nn.Linear(1, 1)
    model.register_buffer("mask", torch.ones(1), persistent=False)
    assert buffer_keys(model) == []


def test_buffers_are_eager_and_parameters_lazy():
    model = walk_model.unwrap(nn.BatchNorm1d(2))
    assert all(record.eager for record in walk_model.buffer_records(model, ALONE))
    assert not any(record.eager for record in walk_model.parameter_records(model, ALONE))


def test_replaced_buffer_is_found():
    model = nn.BatchNorm1d(2)
    record = walk_model.buffer_records(walk_model.unwrap(model), ALONE)[0]
    model.running_mean = torch.full((2,), 7.0)
    assert record.current().tolist() == [7.0, 7.0]


def test_compile_wrapper_leaves_no_trace():
    assert parameter_keys(torch.compile(nn.Linear(1, 1))) == ["weight", "bias"]


def test_plain_model_of_several_ranks_needs_a_replicate_group():
    model = walk_model.unwrap(nn.Linear(1, 1))
    placer = Placer(0, walk_model.plain_group(model, rank=0, world_size=2, replicate_group=None))
    with pytest.raises(UnsupportedError, match="weight is a plain tensor .*replicate_group="):
        walk_model.parameter_records(model, placer)


def test_private_model_of_several_ranks_has_no_group():
    model = walk_model.unwrap(nn.Linear(1, 1))
    assert walk_model.plain_group(model, rank=1, world_size=2, replicate_group=PRIVATE).name is None


def test_buffers_can_have_a_prefix():
    bare = walk_model.unwrap(nn.BatchNorm1d(2))
    records = walk_model.buffer_records(bare, ALONE, prefix="part1.")
    assert [record.key for record in records] == [
        "part1.running_mean", "part1.running_var", "part1.num_batches_tracked"]
