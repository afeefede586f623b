# SPDX-License-Identifier: Apache-2.0
"""The records that each rank of a wrapped model registers, over real process groups and meshes."""

import functools

import pytest
import torch

import models
import tierckpt
from harness import run
from tierckpt.runtime.world import join_world
from tierckpt.state import walk_model
from tierckpt.state.sharding import Placer
from tierckpt.state.walk_optimizer import OptimizerState


def walked(rank, world, kind):
    model, optimizer = models.make(kind)
    bare = walk_model.unwrap(model)
    placer = Placer(rank, walk_model.plain_group(bare, rank, world, None))
    state = OptimizerState(optimizer, walk_model.named_parameters(bare.module), placer)
    records = walk_model.parameter_records(bare, placer) + walk_model.buffer_records(bare, placer) + state.records()
    return {r.key: [r.group, list(r.global_shape), list(r.offset), list(r.current().shape)] for r in records}


@pytest.fixture(scope="module")
def ranks_of(tmp_path_factory):
    """A function of kind that returns the records of each rank; each kind is run once."""
    return functools.cache(lambda kind, world: run(tmp_path_factory.mktemp(kind), "test_walk_ranks:walked",
                                                   world=world, kind=kind))


def test_ddp_twins_are_the_ranks_of_its_group(ranks_of):
    first, second = ranks_of("ddp", 2)
    assert first["0.weight"] == second["0.weight"] == ["ranks:0,1", [5, 6], [0, 0], [5, 6]]
    assert first["optimizer.0.weight.exp_avg"][0] == first["optimizer.0.weight.step"][0] == "ranks:0,1"


def test_ddp_buffers_are_each_ranks_own(ranks_of):
    first, second = ranks_of("ddp", 2)
    assert first["1.running_mean"][0] is None and "rank0/1.running_mean" not in first
    assert second["rank1/1.running_mean"][0] is None and "1.running_mean" not in second


def test_zero_state_is_on_one_rank_each(ranks_of):
    ranks = ranks_of("zero", 2)
    moments = [{key for key in rank if key.endswith("exp_avg")} for rank in ranks]
    assert moments[0] and moments[1] and not moments[0] & moments[1]
    assert len(moments[0] | moments[1]) == 6
    assert all(rank[key][0] is None for rank, keys in zip(ranks, moments, strict=True) for key in keys)


def pieces(ranks, key):
    return [rank.get(key) for rank in ranks]


def test_fsdp_pieces_cover_the_tensor_and_have_no_twin(ranks_of):
    ranks = ranks_of("fsdp", 4)
    assert pieces(ranks, "0.weight") == [[None, [5, 6], [0, 0], [2, 6]], [None, [5, 6], [2, 0], [2, 6]],
                                         [None, [5, 6], [4, 0], [1, 6]], None]
    assert pieces(ranks, "optimizer.0.weight.exp_avg") == pieces(ranks, "0.weight")
    assert ranks[0]["optimizer.0.weight.step"] == ["ranks:0,1,2,3", [], [], []]


def test_hsdp_twins_lie_along_the_replicate_dimension(ranks_of):
    ranks = ranks_of("hsdp", 4)
    assert pieces(ranks, "0.weight") == [["ranks:0,2", [5, 6], [0, 0], [3, 6]], ["ranks:1,3", [5, 6], [3, 0], [2, 6]],
                                         ["ranks:0,2", [5, 6], [0, 0], [3, 6]], ["ranks:1,3", [5, 6], [3, 0], [2, 6]]]


def fences_of_a_zero_step(rank, world):
    model, optimizer = models.make("zero")
    order = []
    weight = model.module[0].weight
    before = weight.detach().clone()
    optimizer.register_step_pre_hook(lambda *_: order.append(torch.equal(weight, before)))
    model(torch.ones(4, models.WIDTH)).sum().backward()
    optimizer.step()
    return [order, torch.equal(weight, before)]


def test_zero_step_calls_the_fence_before_it_changes_anything(tmp_path):
    assert run(tmp_path, "test_walk_ranks:fences_of_a_zero_step", world=2) == [[[True], False]] * 2


def gathered(rank, world):
    """Calls the callback as the library does."""
    import ctypes

    oob = join_world().oob
    mine = (ctypes.c_ubyte * 3)(rank, 7, 9)
    out = (ctypes.c_ubyte * (3 * world))()
    code = oob.callback(None, ctypes.addressof(mine), ctypes.addressof(out), 3)
    return [code, list(out)]


def test_allgather_returns_all_bytes_in_rank_order(tmp_path):
    assert run(tmp_path, "test_walk_ranks:gathered", world=2) == [[0, [0, 7, 9, 1, 7, 9]]] * 2


def refused(rank, world):
    """Returns the errors that a rank gets for tensors that cannot be saved."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Partial

    mesh = init_device_mesh("cpu", (world,))
    partial = DTensor.from_local(torch.ones(2), mesh, [Partial()])
    try:
        Placer(rank, None).record("w", lambda: partial)
    except Exception as error:
        return [type(error).__name__, str(error)]


def test_partial_placement_is_refused(tmp_path):
    name, text = run(tmp_path, "test_walk_ranks:refused", world=2)[0]
    assert name == "UnsupportedError" and "w has placements (Partial(sum),)" in text


def strided(rank, world, rows, split_factor):
    """Returns the position of a strided shard and of a plain one, and whether the rows are right; or an error."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.placement_types import _StridedShard

    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("fsdp", "tp"))
    outer = torch.arange(rows).chunk(world // 2)[mesh.get_coordinate()[1]]
    mine = outer.chunk(2)[mesh.get_coordinate()[0]].reshape(-1, 1).float()
    placements = (_StridedShard(0, split_factor=split_factor), Shard(0))
    tensor = DTensor.from_local(mine, mesh, placements, run_check=False, shape=torch.Size([rows, 1]), stride=(1, 1))
    try:
        record = Placer(rank, None).record("w", lambda: tensor)
    except tierckpt.UnsupportedError as error:
        return str(error)
    first, count = record.offset[0], record.current().shape[0]
    return [first, count, bool(torch.equal(record.current().flatten(), torch.arange(first, first + count).float()))]


def test_shards_of_shards_are_one_piece(tmp_path):
    """As fully_shard creates them from tensor-parallel shards, also if the rows do not divide evenly."""
    assert run(tmp_path, "test_walk_ranks:strided", world=4, rows=8, split_factor=2) == [
        [0, 2, True], [4, 2, True], [2, 2, True], [6, 2, True]]
    assert run(tmp_path, "test_walk_ranks:strided", world=4, rows=9, split_factor=2) == [
        [0, 3, True], [5, 2, True], [3, 2, True], [7, 2, True]]


def test_several_pieces_of_one_tensor_are_refused(tmp_path):
    for text in run(tmp_path, "test_walk_ranks:strided", world=4, rows=8, split_factor=4):
        assert "several pieces of the whole" in text
