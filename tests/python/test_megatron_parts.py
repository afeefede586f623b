# SPDX-License-Identifier: Apache-2.0
"""What is copied from the tensors of one layout to those of another, over random layouts: each element of a global
tensor is a number of its own, so a wrong copy cannot go unnoticed."""

import itertools
import math
import random

import pytest
import torch

from tierckpt.adapters.megatron import description
from tierckpt.adapters.megatron.description import Description, Local
from tierckpt.adapters.megatron.generators import Place, along, choose, derived
from tierckpt.adapters.megatron.parts import (
    Holders,
    Part,
    c_strides,
    clip,
    copies_into,
    is_padding,
    moved,
    pieces,
    simple,
    zeros,
)

SEEDS = range(120)


def numbers(shape, first=1):
    return torch.arange(first, first + math.prod(shape)).view(shape)


def cuts(draw, size):
    """The bounds of parts of a dimension."""
    inner = sorted(draw.sample(range(1, size), draw.randint(0, min(3, size - 1))))
    return list(itertools.pairwise([0, *inner, size]))


def grid(draw, shape):
    """Boxes that make up a global tensor."""
    return [(tuple(begin for begin, _ in box), tuple(end - begin for begin, end in box))
            for box in itertools.product(*(cuts(draw, size) for size in shape))]


def dealt(draw, key, whole):
    """Local tensors, by name, that have all boxes of a global tensor: one or several each, whose elements are in the
    order of some permutation of the dimensions. Returns them as parts and as flat tensors."""
    boxes, locals_ = grid(draw, whole.shape), {}
    draw.shuffle(boxes)
    while boxes:
        mine = [boxes.pop() for _ in range(min(len(boxes), draw.choice([1, 1, 2, 3])))]
        flat, parts = torch.empty(0, dtype=torch.int64), []
        for offset, sizes in mine:
            order = draw.choice(list(itertools.permutations(range(len(sizes)))))
            inner = c_strides(tuple(sizes[d] for d in order))
            strides = tuple(inner[order.index(d)] for d in range(len(sizes)))
            values = whole[tuple(slice(at, at + size) for at, size in zip(offset, sizes, strict=True))].permute(order)
            parts.append(Part(key, tuple(whole.shape), offset, sizes, len(flat), strides))
            flat = torch.cat([flat, values.reshape(-1)])
        locals_[f"local{len(locals_)}"] = parts, flat
    return locals_


def carry_out(copies, saved, into):
    for copy in copies:
        source = torch.zeros(copy.start + copy.span, dtype=into.dtype) if copy.source is None else saved[copy.source]
        into.as_strided(copy.sizes, copy.to_strides, copy.to_start).copy_(
            source.as_strided(copy.sizes, copy.strides, copy.start) if copy.source else torch.zeros(copy.sizes,
                                                                                                    dtype=into.dtype))
    return into


def some_whole(draw):
    return numbers(tuple(draw.randint(1, 7) for _ in range(draw.randint(1, 4))))


@pytest.mark.parametrize("seed", SEEDS)
def test_any_layout_is_filled_from_any_other(seed):
    draw = random.Random(seed)
    whole = some_whole(draw)
    saved, loaded = dealt(draw, "w", whole), dealt(draw, "w", whole)
    sources = [(name, part) for name, (parts, _) in saved.items() for part in parts]
    flats = {name: flat for name, (_, flat) in saved.items()}
    for parts, expected in loaded.values():
        into = torch.zeros_like(expected)
        for part in parts:
            copies, left = copies_into(part, sources)
            assert left == []
            carry_out(copies, flats, into)
        assert torch.equal(into, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_any_range_of_a_local_tensor_is_filled_without_touching_the_rest(seed):
    draw = random.Random(seed)
    whole = some_whole(draw)
    saved, loaded = dealt(draw, "w", whole), dealt(draw, "w", whole)
    sources = [(name, part) for name, (parts, _) in saved.items() for part in parts]
    flats = {name: flat for name, (_, flat) in saved.items()}
    for parts, expected in loaded.values():
        bounds = [0, *sorted(draw.choices(range(len(expected) + 1), k=draw.randint(0, 3))), len(expected)]
        for low, high in itertools.pairwise(bounds):
            clipped = [one for part in parts for one in clip(part, low, high)]
            assert sum(one.numel for one in clipped) == high - low
            copies = [copy for one in clipped for copy in copies_into(one, sources)[0]]
            into = carry_out(moved(copies, low), flats, torch.zeros(high - low, dtype=torch.int64))
            assert torch.equal(into, expected[low:high])


@pytest.mark.parametrize("seed", SEEDS)
def test_pieces_are_the_same_copy_and_read_a_bounded_number_of_elements(seed):
    draw = random.Random(seed)
    whole, most = some_whole(draw), draw.randint(1, 9)
    saved, loaded = dealt(draw, "w", whole), dealt(draw, "w", whole)
    sources = [(name, part) for name, (parts, _) in saved.items() for part in parts]
    flats = {name: flat for name, (_, flat) in saved.items()}
    for parts, expected in loaded.values():
        copies = [copy for part in parts for copy in copies_into(part, sources)[0]]
        small = [piece for copy in copies for piece in pieces(copy, most)]
        assert all(piece.span <= most for piece in small)
        assert sum(piece.numel for piece in small) == len(expected)
        assert torch.equal(carry_out(small, flats, torch.zeros_like(expected)), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_no_rank_has_saved_is_named_exactly(seed):
    draw = random.Random(seed)
    whole = some_whole(draw)
    saved, loaded = dealt(draw, "w", whole), dealt(draw, "w", whole)
    lost = draw.choice(list(saved))
    sources = [(name, part) for name, (parts, _) in saved.items() if name != lost for part in parts]
    missing = torch.zeros_like(whole)
    for part in (part for parts, _ in loaded.values() for part in parts):
        for offset, sizes in copies_into(part, sources)[1]:
            missing[tuple(slice(at, at + size) for at, size in zip(offset, sizes, strict=True))] += 1
    expected = torch.zeros_like(whole)
    for part in saved[lost][0]:
        expected[tuple(slice(at, at + size) for at, size in zip(part.offset, part.sizes, strict=True))] += 1
    assert torch.equal(missing, expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_holders_near_a_part_are_all_that_have_elements_of_it_in_their_order(seed):
    draw = random.Random(seed)
    whole = some_whole(draw)
    saved, loaded = dealt(draw, "w", whole), dealt(draw, "w", whole)
    sources = [(name, part) for name, (parts, _) in saved.items() for part in parts]
    sources += draw.sample(sources, min(len(sources), 3))  # several have the same
    holders = Holders(sources)
    assert list(holders) == sources
    for part in (part for parts, _ in loaded.values() for part in parts):
        near = holders.near(part)
        assert copies_into(part, near) == copies_into(part, sources)
        assert [id(one) for one in near] == [id(one) for one in sources if any(one is other for other in near)]


def test_a_scalar_has_holders_too():
    scalar = Part("s", (), (), (), 0, ())
    assert Holders([("a", scalar)]).near(scalar) == [("a", scalar)]


def test_the_first_of_several_that_have_an_element_is_taken():
    part = Part("w", (4,), (0,), (4,), 0, (1,))
    copies, left = copies_into(part, [("a", part.within(((1,), (2,)))), ("b", part)])
    assert [(copy.source, copy.numel) for copy in copies] == [("a", 2), ("b", 1), ("b", 1)] and left == []


def test_elements_that_lie_one_after_the_other_in_both_are_one_run():
    part = Part("w", (1, 4, 6), (0, 0, 0), (1, 4, 6), 0, (1, 6, 1))
    (copy,), _ = copies_into(part.within(((0, 1, 0), (1, 2, 6))), [("a", part)])
    assert copy.is_run() and (copy.start, copy.to_start, copy.sizes) == (6, 6, (12,))
    (copy,), _ = copies_into(part.within(((0, 0, 1), (1, 4, 2))), [("a", part)])
    assert not copy.is_run() and simple(copy) == copy and copy.sizes == (4, 2)


def test_rows_beyond_a_smaller_vocabulary_are_padding_and_become_zero():
    wanted = Part("w", (6, 2), (0, 0), (6, 2), 0, (2, 1), flexible=True)
    saved = Part("w", (4, 2), (0, 0), (4, 2), 0, (2, 1), flexible=True)
    copies, (box,) = copies_into(wanted, [("a", saved)])
    assert box == ((4, 0), (2, 2)) and is_padding(wanted, box, saved.whole)
    assert not is_padding(wanted, ((3, 0), (1, 2)), saved.whole)
    into = carry_out([*copies, zeros(wanted, box)], {"a": torch.arange(8)}, torch.full((12,), -1))
    assert into.tolist() == [*range(8), 0, 0, 0, 0]


def test_scalars_and_empty_tensors_are_parts_too():
    scalar = Part("s", (), (), (), 0, ())
    assert [copy.numel for copy in copies_into(scalar, [("a", scalar)])[0]] == [1]
    assert list(clip(scalar, 0, 1)) == [scalar] and list(clip(scalar, 1, 2)) == []
    assert list(clip(Part("e", (0, 2), (0, 0), (0, 2), 0, (2, 1)), 0, 1)) == []


def test_a_description_comes_back_from_its_text():
    part = Part("w", (6, 2), (2, 0), (2, 2), 0, (2, 1), flexible=True)
    made = Description({"pp": 1, "tp": 0}, {"pp1.w": Local("bfloat16", (2, 2), (part, part))}, {"m": "m [0]"})
    assert description.from_text(made.text()) == made
    assert description.from_text(Description({}, {}, {}, "why").text()).lacks == "why"


# ---- whose generators a rank goes on with


def ranks(pp, tp, replicas):
    """As Megatron numbers them."""
    cells = itertools.product(range(pp), range(replicas), range(tp))
    return {rank: Place({"pp": p, "tp": t, "etp": t, "ep": 0}, n) for rank, (p, n, t) in enumerate(cells)}


def drawn(saved, now, name, alike=True):
    return {rank: choose(saved, place, along(name), alike) for rank, place in now.items()}


def test_same_place_and_number_go_on_with_the_same_generators():
    saved = ranks(2, 2, 2)
    for name in ("rng", "model-parallel-rng"):
        assert all(choice.rank == rank and choice.seed is None for rank, choice in drawn(saved, saved, name).items())


def test_more_replicas_draw_like_those_that_were_there_unless_they_are_seeded_apart():
    saved, now = ranks(1, 2, 1), ranks(1, 2, 2)
    assert [choice.rank for choice in drawn(saved, now, "rng").values()] == [0, 1, 0, 1]
    assert all(choice.seed is None for choice in drawn(saved, now, "rng").values())
    seeds = [choice.seed for choice in drawn(saved, now, "rng", alike=False).values()]
    assert seeds[:2] == [None, None] and seeds[2] == seeds[3] is not None


def test_ranks_that_must_draw_alike_derive_the_same_and_others_do_not():
    saved, now = ranks(1, 1, 2), ranks(2, 2, 1)
    plain, tensor = drawn(saved, now, "rng"), drawn(saved, now, "model-parallel-rng")
    assert [choice.seed is None for choice in plain.values()] == [True, True, False, False]
    assert plain[2] == plain[3]
    assert [choice.seed is None for choice in tensor.values()] == [True, False, False, False]
    assert len({choice.seed for choice in tensor.values()}) == 4


def test_a_derived_generator_differs_from_that_of_the_other_rank_and_is_a_valid_state():
    state = torch.Generator().manual_seed(1).get_state().numpy().tobytes()
    made = derived(state, 5)
    assert made == derived(state, 5) and made not in (state, derived(state, 6))
    torch.Generator().set_state(torch.frombuffer(bytearray(made), dtype=torch.uint8))
    assert len(derived(bytes(16), 5)) == 16
