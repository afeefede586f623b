# SPDX-License-Identifier: Apache-2.0
"""Ranks that a framework declares to be replicas are accepted only after their bytes were compared."""

import pytest
import torch

from harness import run
from tierckpt import InvalidArgumentError
from tierckpt.runtime.world import World, join_world
from tierckpt.state import twins
from tierckpt.state.records import whole


def compare(rank, world, differ_in):
    tensors = {"same": torch.ones(3), "own": torch.full((2,), float(rank)), "eager": torch.full((1,), float(rank)),
               "other": torch.arange(4) + (rank if differ_in == "other" else 0)}
    group = "ranks:0,1"
    records = [whole(key, lambda key=key: tensors[key], None if key == "own" else group, eager=key == "eager")
               for key in tensors]
    try:
        twins.confirm(records, join_world())
    except InvalidArgumentError as error:
        return str(error)
    return None


def test_equal_twins_are_confirmed(tmp_path):
    assert run(tmp_path, "test_twins:compare", world=2, differ_in=None) == [None, None]


def test_a_difference_names_record_and_ranks_on_all(tmp_path):
    for text in run(tmp_path, "test_twins:compare", world=2, differ_in="other"):
        assert text.startswith("other is said to be the same on ranks:0,1, but ranks 0 and 1 hold other bytes")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.bool, torch.float8_e4m3fn])
def test_any_dtype_can_be_summed(dtype):
    record = whole("w", lambda: torch.zeros(3, 2, dtype=dtype), "ranks:0,1", eager=False)
    twins.confirm([record], World(0, 1, None))
