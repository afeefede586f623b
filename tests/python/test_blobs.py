# SPDX-License-Identifier: Apache-2.0
import random

import numpy
import pytest
import torch
from fake_client import FakeClient

from tierckpt import InvalidArgument, LayoutError, NoSpace, groups
from tierckpt.blobs import Blob, BlobTable
from tierckpt.extra import Extra
from tierckpt.placer import Placer
from tierckpt.rng import Rng

PLACER = Placer(3, groups.of_ranks([3]))


def registered(*blobs):
    table, client = BlobTable(3, list(blobs)), FakeClient()
    table.add_to(client)
    return table, client


def draw():
    return torch.rand(2).tolist(), random.random(), random.gauss(0, 1), numpy.random.normal()


def test_generators_come_back():
    table, client = registered(Rng().blob(None))
    draw()
    table.take(client)
    expected = draw(), draw()
    table.put_back(client)
    assert (draw(), draw()) == expected


def test_keys_carry_the_rank():
    _, client = registered(Rng().blob(None))
    assert list(client.capacities) == ["rank3/tierckpt.rng"]
    assert Rng().record(PLACER).key == "rank3/rng.torch"


def test_growth_beyond_the_room_says_what_to_raise():
    value = {}
    table, client = registered(Blob("extra_state", lambda: value, print))
    value["text"] = "x" * 100000
    with pytest.raises(NoSpace, match=r"init\(capacity=\{'extra_state': bytes\}\)"):
        table.take(client)


def test_capacity_is_the_same_when_the_value_has_grown_a_little():
    capacities = [registered(Blob("x", lambda size=size: "x" * size, print))[1].capacities for size in (1, 5000, 16000)]
    assert capacities[0] == capacities[1] == capacities[2]


def test_given_capacity_holds():
    _, client = registered(Blob("extra_state", dict, print, capacity=123456))
    assert client.capacities == {"rank3/tierckpt.extra_state": 123456}


def test_extra_dict_is_restored_in_place():
    inner = torch.arange(3)
    state = {"epoch": 1, "ema": {"w": inner}, "seen": (1, 2)}
    table, client = registered(Extra(state).blob(None))
    table.take(client)
    state.update(epoch=9, more=1)
    inner.zero_()
    table.put_back(client)
    assert state["epoch"] == 1 and state["seen"] == (1, 2) and "more" not in state
    assert state["ema"]["w"] is inner and inner.tolist() == [0, 1, 2]


class Position:
    def __init__(self):
        self.i, self.order = 0, torch.arange(4)

    def state_dict(self):
        return {"i": self.i, "order": self.order.clone()}

    def load_state_dict(self, state):
        self.i, self.order = state["i"], state["order"]


def test_extra_object_is_asked_at_each_save():
    position = Position()
    extra = Extra(position)
    table, client = registered(extra.blob(None))
    position.i, position.order = 5, position.order.flip(0)
    table.take(client)
    position.i, position.order = 6, torch.zeros(4)
    table.put_back(client)
    assert position.i == 5 and position.order.tolist() == [3, 2, 1, 0]


def test_extra_tensors_are_private_eager_records():
    record, = Extra({"ema": torch.ones(2)}).records(PLACER)
    assert (record.key, record.group, record.eager) == ("rank3/extra.ema", None, True)


def test_extra_tensor_that_appears_later_is_refused():
    state = {"a": torch.ones(2)}
    table, client = registered(Extra(state).blob(None))
    state["b"] = torch.ones(2)
    with pytest.raises(LayoutError, match=r"extra\.b"):
        table.take(client)


def test_extra_of_another_kind_is_refused():
    with pytest.raises(InvalidArgument, match="it is a list"):
        Extra([1])
