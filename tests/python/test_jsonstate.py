# SPDX-License-Identifier: Apache-2.0
import io
import json
import math
from collections import Counter

import numpy
import pytest
import torch

from tierckpt import UnsupportedError
from tierckpt.state import jsonstate


def round_trip(value):
    return jsonstate.loads(jsonstate.dumps("value", value))


@pytest.mark.parametrize("value", [
    None, True, 0, -1, 2**70, 0.1, 5e-324, "", "naïve", [], {}, [1, [2.5, "x"]], {"a": {"b": None}},
    (), (1, (2, [3])), {1: "a", (2, 3): "b"}, b"", b"\x00\xff", {"$tuple": [1]}, {"$x": 1, "y": 2}, Counter({30: 1}),
    math.inf, -math.inf,
])
def test_values_are_restored_equal_and_of_the_same_type(value):
    back = round_trip(value)
    assert back == value and type(back) is type(value)


def test_bytesio_is_restored_whole_and_at_its_begin():
    buffer = io.BytesIO()
    buffer.write(b"\x00losses")
    back = round_trip({"losses": buffer})["losses"]
    assert type(back) is io.BytesIO and back.read() == b"\x00losses"


def test_not_a_number_is_restored():
    assert math.isnan(round_trip(math.nan))


def test_output_is_standard_json():
    json.loads(jsonstate.dumps("value", {"best": math.inf, 1: (2,)}), parse_constant=pytest.fail)


def test_numpy_scalars_become_numbers():
    assert round_trip({"x": numpy.float64(0.1), "n": numpy.int64(3)}) == {"x": 0.1, "n": 3}


@pytest.mark.parametrize("tensor", [
    torch.arange(6.0).reshape(2, 3).t(), torch.tensor(0.1, dtype=torch.float64), torch.ones(0, 4, dtype=torch.int8),
    torch.tensor([1 + 2j]).conj(), torch.tensor([1.5], dtype=torch.bfloat16), torch.tensor([True, False])])
def test_small_tensors_are_restored(tensor):
    back = round_trip({"best": [0, tensor]})["best"][1]
    assert back.dtype == tensor.dtype and torch.equal(back, tensor)


def test_refusal_of_a_sparse_tensor_names_it():
    with pytest.raises(UnsupportedError, match=r"scheduler\.best\[1\] is a tensor of another kind"):
        jsonstate.dumps("scheduler", {"best": [0, torch.ones(1).to_sparse()]})


def test_refusal_of_an_object_names_its_type():
    with pytest.raises(UnsupportedError, match="value.x is a set"):
        jsonstate.dumps("value", {"x": {1}})
