# SPDX-License-Identifier: Apache-2.0
import random

import numpy
import pytest
import torch

from fake_client import FakeClient
from tierckpt import InvalidArgumentError, NoSpaceError
from tierckpt.state import groups
from tierckpt.state.blobs import Blob, BlobTable, alike
from tierckpt.state.rng import Rng
from tierckpt.state.sharding import Placer
from tierckpt.state.user_state import UserState

PLACER = Placer(3, groups.of_ranks([3]))


def registered(*blobs):
    table, client = BlobTable(3, list(blobs)), FakeClient()
    table.add_to(client)
    return table, client


def draw():
    return torch.rand(2).tolist(), random.random(), random.gauss(0, 1), numpy.random.normal()


def test_generators_are_restored():
    table, client = registered(Rng().blob(None))
    draw()
    table.take(client)
    expected = draw(), draw()
    table.put_back(client)
    assert (draw(), draw()) == expected


# ---- generators of ranks that the saved training did not have


def seeded(seed):
    """Returns (table, client) of a rank whose generators were seeded and saved."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)
    table, client = registered(Rng(elastic=True).blob(None))
    table.take(client)
    return table, client


def drawn_by(rank, source, common):
    table, client = BlobTable(rank, source[0]._blobs), FakeClient()
    source[0].put_back(source[1])  # its generators hold torch's state, as after a restore
    source[0].take(source[1])
    client.get_blob = lambda key: source[1].blobs["rank3/tierckpt.rng"]
    table.put_back(client, lent={"rng": set(common)})
    return draw()


def test_new_ranks_draw_other_numbers_than_the_rank_whose_generators_they_have():
    seeded(1)
    drawn = [draw()] + [drawn_by(rank, seeded(1), ()) for rank in (4, 5)]
    for number in range(len(drawn[0])):
        assert len({str(ranks[number]) for ranks in drawn}) == 3


def test_a_second_resume_draws_what_the_first_has_drawn():
    assert drawn_by(4, seeded(1), ()) == drawn_by(4, seeded(1), ())
    assert drawn_by(4, seeded(1), ()) != drawn_by(4, seeded(2), ())


def test_generators_that_all_ranks_had_alike_stay_alike_on_new_ranks():
    seeded(1)
    torch_numbers, *rest = draw()
    drawn = drawn_by(4, seeded(1), ["torch"])
    assert drawn[0] == torch_numbers and all(a != b for a, b in zip(drawn[1:], rest, strict=True))
    assert drawn_by(4, seeded(1), ["torch", "python", "numpy"]) == (torch_numbers, *rest)


def test_marks_say_which_generators_ranks_have_alike():
    table, client = seeded(1)
    one = table.marks(client)
    random.seed(2)
    table.take(client)
    other = table.marks(client)
    assert alike([one, other]) == alike(iter([one, other])) == {"rng": {"torch", "numpy"}}
    assert alike([one, one, other])["rng"] == {"torch", "numpy"}
    assert alike([one, one])["rng"] == {"torch", "python", "numpy"}
    assert alike([one]) == {"rng": set()}  # the value of a single rank may be its own


def test_only_elastic_generators_have_a_rule_for_another_number_of_ranks():
    for rng, rule in ((Rng(), "leave"), (Rng(elastic=True), "any")):
        _, client = registered(rng.blob(None))
        assert client.resharding == {"rank3/tierckpt.rng": rule} and rng.record(PLACER).reshard == rule


def test_keys_carry_the_rank():
    _, client = registered(Rng().blob(None))
    assert list(client.capacities) == ["rank3/tierckpt.rng"]
    assert Rng().record(PLACER).key == "rank3/rng.torch"


def test_growth_beyond_the_room_says_what_to_do():
    value = {}
    table, client = registered(Blob("extra_state", lambda: value, print))
    value["text"] = "x" * 100000
    with pytest.raises(NoSpaceError, match=r"call ckpt.refresh\(\).*init\(capacity=\{'extra_state': bytes\}\)"):
        table.take(client)


def test_a_capacity_that_is_too_small_for_what_there_is_grows():
    _, client = registered(Blob("x", lambda: "x" * 5000, print, capacity=100))
    assert client.capacities["rank3/tierckpt.x"] >= 5000


def test_capacity_is_the_same_when_the_value_has_grown_a_little():
    capacities = [registered(Blob("x", lambda size=size: "x" * size, print))[1].capacities for size in (1, 5000, 16000)]
    assert capacities[0] == capacities[1] == capacities[2]


def test_given_capacity_is_kept():
    _, client = registered(Blob("extra_state", dict, print, capacity=123456))
    assert client.capacities == {"rank3/tierckpt.extra_state": 123456}


def test_extra_dict_is_restored_in_place():
    inner = torch.arange(3)
    state = {"epoch": 1, "ema": {"w": inner}, "seen": (1, 2)}
    table, client = registered(UserState(state).blob(None))
    table.take(client)
    state.update(epoch=9, more=1)
    inner.zero_()
    table.put_back(client)
    assert state["epoch"] == 1 and state["seen"] == (1, 2)
    assert state["more"] == 1, "a key that was not saved was taken from the program"
    assert state["ema"]["w"] is inner and inner.tolist() == [0, 1, 2]


class Position:
    def __init__(self):
        self.i, self.order = 0, torch.arange(4)

    def state_dict(self):
        return {"i": self.i, "order": self.order.clone()}

    def load_state_dict(self, state):
        self.i, self.order = state["i"], state["order"]


def test_extra_object_is_queried_at_each_save():
    position = Position()
    extra = UserState(position)
    table, client = registered(extra.blob(None))
    position.i, position.order = 5, position.order.flip(0)
    table.take(client)
    position.i, position.order = 6, torch.zeros(4)
    table.put_back(client)
    assert position.i == 5 and position.order.tolist() == [3, 2, 1, 0]


LARGE = 100_000


def test_large_extra_tensors_are_private_eager_records_and_small_ones_are_none():
    record, = UserState({"ema": torch.ones(LARGE), "best": torch.ones(2)}).records(PLACER)
    assert (record.key, record.group, record.eager) == ("rank3/extra.ema", None, True)


@pytest.mark.parametrize("before, after", [
    (1e9, torch.tensor(2.5)), (torch.tensor(2.5), 1.0), (torch.ones(2), torch.ones(3, 3)), (None, {"a": torch.ones(2)}),
    (torch.ones(LARGE), None), (torch.ones(LARGE), torch.ones(3)), (torch.ones(2), [torch.ones(1), 2])])
def test_an_extra_value_may_become_one_of_another_kind(before, after):
    state = {"best": before}
    table, client = registered(UserState(state).blob(None))
    state["best"] = after
    table.take(client)
    state["best"] = before
    table.put_back(client)
    torch.testing.assert_close(state["best"], after, rtol=0, atol=0)


def test_a_large_extra_tensor_that_comes_later_needs_more_room_and_gets_it_at_a_refresh():
    state = {}
    table, client = registered(UserState(state).blob(None))
    state["ema"] = torch.ones(LARGE)
    with pytest.raises(NoSpaceError, match="call ckpt.refresh"):
        table.take(client)
    table, client = registered(UserState(state).blob(None))
    table.take(client)


def test_after_a_load_new_keys_are_still_there_and_the_next_save_has_them():
    state = {"a": 1}
    table, client = registered(UserState(state).blob(None))
    table.take(client)
    state["new"] = torch.ones(2)
    table.put_back(client)
    table.take(client)
    state["new"] = None
    table.put_back(client)
    assert state["new"].tolist() == [1, 1]


def test_large_extra_tensors_are_restored_in_place():
    tensor = torch.arange(float(LARGE))
    state = {"ema": tensor}
    extra = UserState(state)
    table, client = registered(extra.blob(None))
    table.take(client)
    tensor.zero_()
    table.put_back(client)
    assert state["ema"] is tensor and tensor[-1] == LARGE - 1


def test_extra_of_another_kind_is_refused():
    with pytest.raises(InvalidArgumentError, match="this is of type list"):
        UserState([1])
