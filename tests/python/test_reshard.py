# SPDX-License-Identifier: Apache-2.0
"""Versions of another layout are read from storage, or refused with nothing changed."""

import contextlib
import logging
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import tierckpt
from harness import run
from tierckpt.adapters import reshard
from tierckpt.adapters.reshard import load_any_layout
from tierckpt.core.checkpoint import Contents, attach
from tierckpt.runtime.world import join_world
from tierckpt.state import groups
from tierckpt.state.blobs import Blob
from tierckpt.state.module_state import blobs_of
from tierckpt.state.records import Record, whole
from tierckpt.state.rng import Rng
from tierckpt.state.sharding import Placer

ROWS = 12


class _Holder:
    """This rank's rows of one tensor, a private value, and a common value."""

    def __init__(self, rank, world, rows=ROWS, key="rows", blob="value", declares=False):
        part = rows // world
        self.mine = torch.zeros(part)
        self.own = torch.full((2,), float(rank))
        self.value = {"rank": rank}
        records = [Record(key, lambda: self.mine, (rows,), (part * rank,), None, False),
                   whole(f"rank{rank}/own", lambda: self.own, None, eager=True)]
        declared = Blob("export", lambda: {"of": world}, self._apply, 4096, reshard="leave", declaration=True)
        self.contents = Contents(records, [Blob(blob, lambda: self.value, self._apply), *([declared] * declares)])

    def _apply(self, value):
        self.value = value


def save(rank, world, config, declares=False):
    holder = _Holder(rank, world, declares=declares)
    holder.mine.copy_(torch.arange(ROWS, dtype=torch.float32)[rank * len(holder.mine):][:len(holder.mine)])
    checkpoint = attach(holder.contents, world=join_world(), config=config)
    checkpoint.save_checkpoint(5, to_storage=True)
    checkpoint.wait("drained")
    checkpoint.close()


def load(rank, world, config, **arguments):
    """Returns [step or error, rows, own, value]."""
    holder = _Holder(rank, world, **arguments)
    joined = join_world()
    with attach(holder.contents, world=joined, config=config) as checkpoint:
        try:
            step = load_any_layout(checkpoint, holder.contents, joined, config=config)
        except tierckpt.LayoutError as error:
            step = str(error)
    return [step, holder.mine.tolist(), holder.own.tolist(), holder.value]


@pytest.mark.parametrize("before, after", [(2, 3), (3, 2), (2, 1), (2, 2)])
def test_each_rank_reads_its_part(tmp_path, site, before, after):
    run(tmp_path, "test_reshard:save", world=before, config=site.config)
    ranks = run(tmp_path, "test_reshard:load", world=after, config=site.config)
    assert [step for step, *_ in ranks] == [5] * after
    assert [row for _, rows, _, _ in ranks for row in rows] == list(range(ROWS))
    sources = [rank if rank < before else 0 for rank in range(after)]
    assert [own for _, _, own, _ in ranks] == [[float(source)] * 2 for source in sources]
    assert [value for *_, value in ranks] == [{"rank": source} for source in sources]


@pytest.mark.parametrize("before, after", [((2, False), (2, True)), ((2, False), (3, True)), ((2, True), (2, False)),
                                           ((2, True), (3, True)), ((2, True), (2, True))])
def test_what_describes_the_layout_is_not_put_back_and_may_be_missing(tmp_path, site, before, after):
    """As in versions of a release that did not have it."""
    run(tmp_path, "test_reshard:save", world=before[0], config=site.config, declares=before[1])
    if before != after:
        site.kill_agents()
    ranks = run(tmp_path, "test_reshard:load", world=after[0], config=site.config, declares=after[1])
    assert [(step, value) for step, *_, value in ranks] == \
        [(5, {"rank": rank if rank < before[0] else 0}) for rank in range(after[0])]


@pytest.mark.parametrize("arguments, text", [
    ({"rows": 24}, "its rows is torch.float32 (12,), here it is torch.float32 (24,)"),
    ({"key": "other"}, "it has no other"), ({"blob": "another"}, "it has no rank0/tierckpt.another")])
def test_what_does_not_fit_is_refused_and_nothing_changed(tmp_path, site, arguments, text):
    run(tmp_path, "test_reshard:save", world=2, config=site.config)
    ranks = run(tmp_path, "test_reshard:load", world=3, config=site.config, **arguments)
    for number, (error, rows, own, value) in enumerate(ranks):
        assert text in error
        assert set(rows) == {0.0} and own == [number, number] and value == {"rank": number}


def published_index(site):
    index, = site.dir.glob("save/test/v*/.index")
    return index


def test_with_a_damaged_index_the_files_count(tmp_path, site):
    run(tmp_path, "test_reshard:save_ruled", world=2, config=site.config)
    damaged = bytearray(published_index(site).read_bytes())
    damaged[200] ^= 1
    published_index(site).write_bytes(damaged)
    ranks = run(tmp_path, "test_reshard:load_ruled", world=3, config=site.config)
    assert_rows(ranks)
    assert all(by_library for *_, by_library, _ in ranks)
    lines = [line for *_, lines in ranks for line in lines]
    assert any(f"{published_index(site)} cannot be used" in line for line in lines), lines


# ---- rules by which the library reshards


class _Ruled:
    """With rules: this rank's rows, a value that grows on rank 0, and generators."""

    def __init__(self, rank, world, room):
        part = ROWS // world
        self.rank, self.value, self.rng = rank, {"rank": rank}, Rng(elastic=True)
        self.mine = torch.zeros(part, ROWS)
        placer = Placer(rank, groups.of_ranks([rank]))
        records = [Record("rows", lambda: self.mine, (ROWS, ROWS), (part * rank, 0), None, False),
                   self.rng.record(placer)]
        blobs = [Blob("value", lambda: self.value, self._apply, room, reshard="any", fits=self._fits),
                 self.rng.blob(None)]
        self.contents = Contents(records, blobs)

    def _apply(self, value):
        self.value = value

    @staticmethod
    def _fits(value):
        if value.get("wrong"):
            raise tierckpt.LayoutError("the value is wrong")


def save_ruled(rank, world, config, room=1000, wrong=False, alike=False):
    """Returns the next draws of its generators."""
    torch.manual_seed(0 if alike else rank)
    holder = _Ruled(rank, world, room if rank == 0 else 1000)
    holder.mine.copy_(torch.arange(ROWS * ROWS, dtype=torch.float32).view(ROWS, ROWS)[rank * len(holder.mine):]
                      [:len(holder.mine)])
    holder.value.update(text="x" * (room // 2 if rank == 0 else 1), wrong=wrong)
    with attach(holder.contents, world=join_world(), config=config) as checkpoint:
        checkpoint.save_checkpoint(5, to_storage=True)
        checkpoint.wait("drained")
    return torch.rand(1).item()


def load_ruled(rank, world, config):
    """Returns [step or error, rows, whose value, next draws of its generators, whether the library resharded,
    warnings].
    """
    holder, joined, lines = _Ruled(rank, world, 1000), join_world(), []
    log = logging.getLogger("tierckpt")
    log.addHandler(heard := logging.Handler(logging.WARNING))
    heard.emit = lambda record: lines.append(record.getMessage())
    with attach(holder.contents, world=joined, config=config) as checkpoint:
        try:
            step = load_any_layout(checkpoint, holder.contents, joined, config=config)
        except tierckpt.LayoutError as error:
            step = str(error)
        by_library = checkpoint.restored is not None and bool(checkpoint.restored.resharded)
    return [step, holder.mine.tolist(), holder.value["rank"], torch.rand(1).item(), by_library, lines]


def assert_rows(ranks):
    rows = [row for _, mine, *_ in ranks for row in mine]
    assert rows == torch.arange(ROWS * ROWS, dtype=torch.float32).view(ROWS, ROWS).tolist()


@pytest.mark.parametrize("alike", [False, True])
def test_with_rules_more_ranks_are_served_by_the_library_and_new_ones_draw_numbers_of_their_own(tmp_path, site, alike):
    saved = run(tmp_path, "test_reshard:save_ruled", world=2, config=site.config, alike=alike)
    ranks = run(tmp_path, "test_reshard:load_ruled", world=4, config=site.config)
    assert_rows(ranks)
    steps, _, sources, drawn, by_library, lines = zip(*ranks, strict=True)
    assert steps == (5,) * 4 and sources == (0, 1, 0, 1) and all(by_library)
    assert list(drawn[:2]) == saved
    assert len(set(drawn)) == (1 if alike else 4)
    assert any("is read for this number of ranks" in line for line in lines[0])
    for rank in range(4):
        derived = [line for line in lines[rank] if f"rng of rank {rank}, which is new, is derived" in line]
        assert len(derived) == (rank >= 2)


def test_with_rules_fewer_ranks_are_served_by_the_library_and_keep_their_generators(tmp_path, site):
    saved = run(tmp_path, "test_reshard:save_ruled", world=3, config=site.config)
    ranks = run(tmp_path, "test_reshard:load_ruled", world=2, config=site.config)
    assert_rows(ranks)
    assert [rank[2:5] for rank in ranks] == [[0, saved[0], True], [1, saved[1], True]]


def test_a_value_for_which_a_new_rank_has_less_room_than_its_lender_is_read_all_the_same(tmp_path, site):
    saved = run(tmp_path, "test_reshard:save_ruled", world=2, config=site.config, room=200000)
    ranks = run(tmp_path, "test_reshard:load_ruled", world=3, config=site.config)
    assert_rows(ranks)
    assert [rank[2] for rank in ranks] == [0, 1, 0] and not any(rank[4] for rank in ranks)
    assert [rank[3] for rank in ranks][:2] == saved and len({rank[3] for rank in ranks}) == 3


def test_a_value_that_does_not_fit_is_refused_with_nothing_changed(tmp_path, site):
    run(tmp_path, "test_reshard:save_ruled", world=2, config=site.config, wrong=True)
    for number, (error, rows, source, *_) in enumerate(run(tmp_path, "test_reshard:load_ruled", world=3,
                                                           config=site.config)):
        assert "the value is wrong" in error and source == number
        assert not any(map(any, rows))


def test_nothing_saved_is_nothing_found(tmp_path, site):
    assert run(tmp_path, "test_reshard:load", world=2, config=site.config)[0][0] is None


class _Refuses:
    """A checkpoint that has already loaded, and whose next load is refused."""

    restored = SimpleNamespace(version=(1, 4), passed_over=None)

    def load_checkpoint(self, step):
        raise tierckpt.LayoutError("the shape has changed")


def test_a_second_load_that_is_refused_is_not_taken_for_nothing_saved(monkeypatch):
    def refuse(published, contents, world):
        raise tierckpt.LayoutError("storage lacks it, too")

    stored = contextlib.nullcontext(SimpleNamespace())
    stored.version, stored.step = (1, 4), 4
    stored.close = lambda: None
    monkeypatch.setattr(reshard, "_of_another_layout", lambda *arguments: stored)
    monkeypatch.setattr(reshard, "_check", refuse)
    with pytest.raises(tierckpt.LayoutError, match="storage lacks it"):
        load_any_layout(_Refuses(), None, None)


class _Stage(nn.Module):
    """A stage of a pipeline, with a value that is not a tensor."""

    value = 0

    def get_extra_state(self):
        return self.value

    def set_extra_state(self, state):
        self.value = state


def _stages(rank, numbers):
    stages = {number: _Stage() for number in numbers}
    records = [whole(f"stage{number}", lambda: torch.zeros(1), f"rank{rank}", eager=False) for number in numbers]
    return stages, Contents(records, blobs_of((f"{number}", stage) for number, stage in stages.items()))


def save_stages(rank, world, config):
    stages, contents = _stages(rank, [rank])
    stages[rank].value = 10 + rank
    with attach(contents, world=join_world(), config=config) as checkpoint:
        checkpoint.save_last(5)


def load_stages(rank, world, config, cut):
    stages, contents = _stages(rank, cut[rank])
    world = join_world()
    with attach(contents, world=world, config=config) as checkpoint:
        load_any_layout(checkpoint, contents, world, config=config)
    return {number: stage.value for number, stage in stages.items()}


@pytest.mark.parametrize("cut", [[[1], [0]], [[0, 1]]], ids=["exchanged", "joined"])
def test_values_of_modules_follow_them_to_other_ranks(tmp_path, site, cut):
    run(tmp_path, "test_reshard:save_stages", world=2, config=site.config)
    ranks = run(tmp_path, "test_reshard:load_stages", world=len(cut), config=site.config, cut=cut)
    assert ranks == [{str(number): 10 + number for number in numbers} for numbers in cut]
