# SPDX-License-Identifier: Apache-2.0
"""torch.distributed.checkpoint through our tiers: what is loaded is what was saved, bit for bit."""

import functools
import pickle
import random

import numpy
import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import tierckpt.dcp
from harness import Job, die, run
from test_published import assert_loads, load
from tierckpt.adapters.dcp import flatten
from training import Training

NURSERY = "test_dcp"
STEPS = 6


class Resumable(Training):
    def __init__(self, rank, kind):
        super().__init__(rank if kind != "tp" else rank // 2, kind)  # tensor parallel ranks must have the same data

    def state(self):
        model, optimizer = get_state_dict(self.model, self.optimizer)
        kind, words, *rest = numpy.random.get_state()
        return {"model": model, "optimizer": optimizer, "scheduler": self.scheduler.state_dict(),
                "position": self.position, "rng": {"torch": torch.get_rng_state(), "python": random.getstate(),
                                                   "numpy": (kind, words.tolist(), *rest)}}

    def put(self, state):
        set_state_dict(self.model, self.optimizer, model_state_dict=state["model"],
                       optim_state_dict=state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.position = state["position"]
        torch.set_rng_state(state["rng"]["torch"])
        random.setstate(state["rng"]["python"])
        numpy.random.set_state(tuple(state["rng"]["numpy"]))


def train(rank, world, kind, config=None, own_nodes=False, die_at=None, in_flight=False, storage_at=None):
    """Returns [step resumed at, bytes by source, losses from there on, digest]."""
    job = Resumable(rank, kind)
    state = job.state()
    if config is None:
        return [0, None, [job.step() for _ in range(STEPS)], job.digest()]
    group = dist.new_group() if world > 1 else None
    replicas = group if kind == "ddp" else None
    tiers = tierckpt.dcp.attach(state, config=config, overrides={"node": f"node{rank}"} if own_nodes else None,
                                replicate_group=replicas, private=["position.*", "rng.*", "model.*.running_*",
                                                                   "model.*.num_batches_tracked"])
    with tiers:
        resumed, source = 0, None
        if tiers.newest() is not None:
            reader = tiers.reader()
            dcp.load(state, storage_reader=reader)
            job.put(state)
            assert_complete(tiers.reader().read_metadata())
            resumed, source = reader.step, {name: getattr(tiers.restored, name) for name in
                                            ("bytes_local", "bytes_twin", "bytes_peer", "bytes_storage")}
        losses, upload = [], None
        for step in range(resumed + 1, STEPS + 1):
            losses.append(job.step())
            if upload is not None:
                upload.result()  # one at a time goes through a process group
            if step == die_at and in_flight:
                wait_for_all(world)
            upload = dcp.async_save(job.state(), process_group=group, storage_writer=tiers.writer(
                f"step-{step}", to_storage=step == storage_at)).upload_completion
            if step == die_at and not in_flight:
                upload.result()
                wait_for_all(world)
            if step == die_at:
                die()
        upload.result()
        return [resumed, source, losses, job.digest()]


def assert_complete(metadata):
    """Asserts on each rank that the pieces of all ranks are there, replicas only once."""
    for key, entry in metadata.state_dict_metadata.items():
        if isinstance(entry, TensorStorageMetadata):
            assert sum(chunk.sizes.numel() for chunk in entry.chunks) == entry.size.numel(), key
    assert metadata.planner_data.keys() == metadata.state_dict_metadata.keys()


def wait_for_all(world):
    if world > 1:
        dist.barrier()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    """A function of (kind, world) that returns the results of all ranks; each combination is run once."""
    return functools.cache(lambda kind, world: run(tmp_path_factory.mktemp(kind), "test_dcp:train", nursery=nursery,
                                                   world=world, kind=kind))


def killed(tmp_path, **arguments):
    with Job(tmp_path, "test_dcp:train", **arguments) as job:
        job.killed()


def assert_same(resumed, reference):
    for (step, _, losses, digest), (_, _, all_losses, all_digest) in zip(resumed, reference, strict=True):
        assert losses == all_losses[step:]
        assert digest == all_digest


@pytest.mark.parametrize("kind, world, in_flight", [("plain", 1, False), ("fsdp", 2, True), ("hsdp", 4, False),
                                                    ("tp", 4, False)])
def test_resumed_from_memory_with_equal_bits(tmp_path, site, nursery, uninterrupted, kind, world, in_flight):
    """In flight: the ranks die right after the save of a step has begun, so that version may or may not exist."""
    step = random.Random(kind).randint(2, STEPS - 1)
    killed(tmp_path, nursery=nursery, world=world, kind=kind, config=site.config, die_at=step,
           in_flight=in_flight)
    resumed = run(tmp_path, "test_dcp:train", nursery=nursery, world=world, kind=kind, config=site.config)
    assert {rank[0] for rank in resumed} in ([{step - 1}, {step}] if in_flight else [{step}])
    assert all(rank[1]["bytes_local"] > 0 for rank in resumed)
    assert_same(resumed, uninterrupted(kind, world))


@pytest.mark.parametrize("kind, source", [("fsdp", "bytes_peer"), ("ddp", "bytes_twin")])
def test_lost_node_is_restored_from_the_other(tmp_path, site, nursery, uninterrupted, kind, source):
    config = {**site.config, "copies": 2}
    killed(tmp_path, nursery=nursery, world=2, kind=kind, config=config, die_at=3, own_nodes=True)
    site.kill_agents("node1")
    resumed = run(tmp_path, "test_dcp:train", nursery=nursery, world=2, kind=kind, config=config, own_nodes=True)
    assert [rank[0] for rank in resumed] == [3, 3]
    assert resumed[1][1]["bytes_local"] == 0 and resumed[1][1][source] > 0
    assert_same(resumed, uninterrupted(kind, 2))


def test_resumed_from_storage_with_equal_bits(tmp_path, site, nursery, uninterrupted):
    killed(tmp_path, nursery=nursery, world=2, kind="fsdp", config=site.config, die_at=4, storage_at=4)
    site.kill_agents()
    resumed = run(tmp_path, "test_dcp:train", nursery=nursery, world=2, kind="fsdp", config=site.config)
    assert [rank[0] for rank in resumed] == [4, 4]
    assert all(rank[1]["bytes_storage"] > 0 for rank in resumed)
    assert_same(resumed, uninterrupted("fsdp", 2))


# ---- changes during a copy


def test_a_tensor_that_is_written_to_while_it_is_copied_makes_no_version(site):
    state = {"model": {"weight": torch.zeros(300, 1000)}}
    with tierckpt.dcp.attach(state, config=site.config) as tiers:
        dcp.save(state, checkpoint_id=1, storage_writer=tiers.writer())
        with tiers._checkpoint._client.watch._lock:  # no snapshot is confirmed in the meantime
            tiers.snapshot(*flatten(state), 2, to_storage=False)
            state["model"]["weight"].fill_(7)
        with pytest.raises(tierckpt.CanceledError, match="weight changed while it was being copied"):
            tiers.wait(2, to_storage=False)
        dcp.save(state, checkpoint_id=3, storage_writer=tiers.writer())
        state["model"]["weight"].fill_(8)
        dcp.load(state, storage_reader=tiers.reader())
        assert state["model"]["weight"].unique().tolist() == [7.0]


# ---- another layout


def whole(value):
    """A nested state dict with whole tensors in place of DTensors."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    return value.full_tensor() if isinstance(value, DTensor) else value


def save_steps(rank, world, config, storage, memory, reference):
    """Publishes one step, leaves a later one in memory, and writes the whole of it to `reference`."""
    job = Resumable(rank, "fsdp")
    with tierckpt.dcp.attach(config=config) as tiers:
        for step in range(1, max(storage, memory) + 1):
            job.step()
            if step in (storage, memory):
                dcp.save(job.state(), checkpoint_id=step, storage_writer=tiers.writer(to_storage=step == storage))
        state = whole(job.state())
        if rank == 0:
            torch.save({key: state[key] for key in ("model", "optimizer", "scheduler", "position")}, reference)
        dist.barrier()
        tiers.close(job_done=False)


def cut(value, mesh):
    """Blank tensors of the same shapes, cut in another dimension than they were saved in if they have one."""
    if isinstance(value, dict):
        return {key: cut(item, mesh) for key, item in value.items()}
    if isinstance(value, list):
        return [cut(item, mesh) for item in value]
    if not torch.is_tensor(value):
        return None
    blank = torch.full_like(value, 99)
    if mesh is None or value.dim() == 0:
        return blank
    placements = [Replicate()] * (mesh.ndim - 1) + [Shard(value.dim() - 1)]
    return distribute_tensor(blank, mesh, placements)


def same(value, other):
    if isinstance(value, dict):
        return value.keys() == other.keys() and all(same(value[key], other[key]) for key in value)
    if isinstance(value, list):
        return len(value) == len(other) and all(map(same, value, other))
    return torch.equal(value, other) if torch.is_tensor(value) else value == other


def load_steps(rank, world, config, reference, attached=False):
    """Loads the saved version with another number of ranks. Returns whether everything is equal, and the step or the
    error."""
    expected = torch.load(reference, weights_only=False)
    mesh, found = {1: None, 2: (2,), 4: (2, 2)}[world], None
    state = cut(expected, mesh and init_device_mesh("cpu", mesh))
    try:
        if attached:
            with tierckpt.dcp.attach(state, config=config) as tiers:
                found = tiers.newest()
                reader = tiers.reader()
                dcp.load(state, storage_reader=reader)
                tiers.close(job_done=False)
        else:
            reader = tierckpt.dcp.StorageReader(config)
            dcp.load(state, storage_reader=reader)
            found = reader.step
    except CheckpointException as error:
        return [found, str(error)]
    return [found, reader.step, same(whole(state), expected)]


@pytest.fixture
def job(tmp_path, site, nursery):
    """Calls save_steps and load_steps on ranks of one job."""
    def call(function, world, name="reference", **arguments):
        return run(tmp_path, f"test_dcp:{function}", nursery=nursery, world=world, config=site.config,
                   reference=str(tmp_path / f"{name}.pt"), **arguments)

    return call


def test_other_numbers_of_ranks_load_what_was_published(tmp_path, site, job):
    job("save_steps", 2, storage=3, memory=3)
    for world in (1, 2, 4):
        assert job("load_steps", world) == [[3, 3, True]] * world
    manifest, = (site.dir / "save" / "test").glob("*/manifest.json")
    reference = tmp_path / "reference.pt"
    assert_loads([load(manifest.parent, reference)])
    assert_loads([load(manifest.parent, reference, tmp_path / "store", rank, 2) for rank in range(2)])


def test_what_only_memory_has_is_published_for_another_number_of_ranks(job):
    job("save_steps", 2, storage=2, memory=4)
    assert job("load_steps", 1, attached=True) == [[4, 4, True]]
    job("save_steps", 2, "again", storage=6, memory=8)
    assert job("load_steps", 1, "again") == [[8, 8, True]]


# ---- correct and incorrect use


class Plain:
    """A job of one rank, in this process."""

    def __init__(self, site, **arguments):
        self.state = {"model": {"w": torch.arange(6.0)}, "scalar": torch.tensor(7), "step": 1, "pair": (1, None)}
        self.tiers = tierckpt.dcp.attach(config=site.config, **arguments)

    def save(self, step, **arguments):
        return dcp.save(self.state, storage_writer=self.tiers.writer(step, **arguments), no_dist=True)


@pytest.fixture
def plain(site):
    job = Plain(site)
    yield job
    job.tiers.close()


@pytest.mark.parametrize("checkpoint_id, step", [(120, 120), ("120", 120), ("step-120", 120), ("/a/b3/ckpt_120", 120)])
def test_checkpoint_id_names_a_step(checkpoint_id, step):
    assert tierckpt.dcp.StorageWriter.validate_checkpoint_id(checkpoint_id)
    assert tierckpt.dcp.step_of(checkpoint_id) == step


@pytest.mark.parametrize("checkpoint_id", ["", "step-120/", "newest", 0, "step-0", "9" * 19])
def test_other_checkpoint_ids_are_refused(checkpoint_id):
    assert not tierckpt.dcp.StorageWriter.validate_checkpoint_id(checkpoint_id)
    with pytest.raises(tierckpt.InvalidArgumentError, match="names no step"):
        tierckpt.dcp.step_of(checkpoint_id)


def test_saves_follow_moved_tensors_and_changed_values(plain):
    plain.save(1)
    plain.state = {"model": {"w": torch.arange(6.0) + 1}, "scalar": torch.tensor(8), "step": 2, "pair": (1, "x")}
    plain.save(2)
    loaded = {"model": {"w": torch.zeros(6)}, "scalar": torch.tensor(0), "step": None, "pair": None}
    dcp.load(loaded, storage_reader=plain.tiers.reader(), no_dist=True)
    assert same(loaded, plain.state)


def test_part_of_what_was_saved_is_loaded_and_nothing_else_is_touched(plain):
    plain.save(1)
    saved = plain.state["model"]["w"].clone()
    plain.state["model"]["w"] += 1
    loaded = {"scalar": torch.tensor(0), "model": {"w": torch.zeros(6, dtype=torch.float64)}}
    dcp.load(loaded, storage_reader=plain.tiers.reader(), no_dist=True)
    assert torch.equal(loaded["model"]["w"], saved.double()) and loaded["scalar"] == 7
    assert torch.equal(plain.state["model"]["w"], saved + 1)


def test_async_save_is_not_torn_by_the_next_step(plain):
    weight = torch.nn.Parameter(torch.zeros(1 << 20))
    optimizer = torch.optim.SGD([weight], lr=1.0)
    weight.grad = torch.ones_like(weight)
    response = dcp.async_save({"w": weight.detach()}, storage_writer=plain.tiers.writer(1), no_dist=True)
    optimizer.step()
    assert isinstance(response, AsyncSaveResponse)
    response.staging_completion.result()
    response.upload_completion.result()
    loaded = {"w": torch.ones(1 << 20)}
    dcp.load(loaded, storage_reader=plain.tiers.reader(), no_dist=True)
    assert not loaded["w"].any()


def test_upload_is_complete_when_published_if_it_is_to_storage(site):
    site.config["save_storage_interval"] = 3
    job = Plain(site)
    for step in range(1, 4):
        job.save(step)
    assert job.tiers.stats().published_step == 3
    job.save(4, to_storage=True)
    assert job.tiers.stats().published_step == 4
    job.tiers.close()
    loaded = {"model": {"w": torch.zeros(6)}, "step": None}
    dcp.load(loaded, checkpoint_id="step-3", storage_reader=tierckpt.dcp.StorageReader(site.config), no_dist=True)
    assert torch.equal(loaded["model"]["w"], torch.arange(6.0)) and loaded["step"] == 1
    directory = max((site.dir / "save" / "test").glob("v*"))
    everything = _load_state_dict_from_keys(storage_reader=tierckpt.dcp.StorageReader(directory))
    assert same(everything, job.state)


def test_changed_layout_is_one_error_that_says_what_to_do(plain):
    plain.save(1)
    plain.state["model"]["w"] = torch.zeros(7)
    with pytest.raises(CheckpointException, match="model.w was .*6,.* and is .*7,.*close this and attach again"):
        plain.save(2)
    plain.state["model"] = {}
    with pytest.raises(CheckpointException, match="model.w was .* and is not there"):
        plain.save(3)


def test_what_only_memory_has_of_another_layout_is_published_first(site):
    """Published when ranks attach with another layout, so that every reader finds it; the layout that saved it can
    still load it."""
    job = Plain(site)
    for step in (1, 2):
        job.state["step"] = step
        job.save(step, to_storage=step == 1)
    saved = job.state
    job.tiers.close(job_done=False)
    job = Plain(site)
    job.state = {"other": torch.zeros(3)}
    job.tiers.attach(job.state)
    assert job.tiers.newest() == 2
    with pytest.raises(CheckpointException, match="Missing key in checkpoint state_dict: other"):
        dcp.load(job.state, storage_reader=job.tiers.reader(), no_dist=True)
    job.tiers.close(job_done=False)
    for wanted, step in ((None, 2), (1, 1)):
        loaded = {"step": None}
        dcp.load(loaded, checkpoint_id=wanted, storage_reader=tierckpt.dcp.StorageReader(site.config), no_dist=True)
        assert loaded["step"] == step
    job = Plain(site)
    job.tiers.attach(saved)
    dcp.load(saved, storage_reader=job.tiers.reader(), no_dist=True)
    assert job.tiers.restored.version.step == 2
    job.tiers.close()


def test_async_save_without_a_step_says_so(plain):
    with pytest.raises(tierckpt.InvalidArgumentError, match="the step is not known"):
        dcp.async_save(plain.state, checkpoint_id="step-1", storage_writer=plain.tiers.writer(), no_dist=True)


def test_load_of_nothing_says_so(plain):
    with pytest.raises(tierckpt.InvalidArgumentError, match="nothing is registered yet"):
        plain.tiers.newest()
    plain.tiers.attach(plain.state)
    assert plain.tiers.newest() is None
    with pytest.raises(CheckpointException, match="nothing was saved yet"):
        dcp.load(plain.state, storage_reader=plain.tiers.reader(), no_dist=True)


def test_other_values_are_pickled_only_if_asked(site, plain):
    plain.state["odd"] = {1, 2}
    with pytest.raises(CheckpointException, match="odd is a set"):
        plain.save(1)
    plain.tiers.close()
    job = Plain(site, pickle_leaves=True)
    job.state["odd"] = {1, 2}
    job.save(1)
    loaded = {"odd": None}
    dcp.load(loaded, storage_reader=job.tiers.reader(), no_dist=True)
    assert loaded["odd"] == {1, 2}
    job.tiers.close()


def test_writer_cannot_be_used_in_another_process(plain):
    with pytest.raises(tierckpt.UnsupportedError, match="use AsyncCheckpointerType.THREAD"):
        pickle.dumps(plain.tiers.writer(1))


def test_planner_that_transforms_is_refused(plain):
    class Halves(dcp.DefaultSavePlanner):
        def transform_object(self, write_item, object):
            return super().transform_object(write_item, object)

    with pytest.raises(CheckpointException, match="Halves is not supported"):
        dcp.save(plain.state, storage_writer=plain.tiers.writer(1), planner=Halves(), no_dist=True)


def test_cached_plans_make_no_difference(plain):
    for step in (1, 2):
        plain.state["step"] = step
        dcp.save(plain.state, storage_writer=plain.tiers.writer(step), no_dist=True,
                 planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
    loaded = {"step": None}
    dcp.load(loaded, storage_reader=plain.tiers.reader(), no_dist=True)
    assert loaded["step"] == 2


def test_unknown_torch_turns_saving_off_and_training_goes_on(site, monkeypatch, caplog):
    monkeypatch.setattr(dcp, "async_save", lambda state_dict: None)
    job = Plain(site)
    job.tiers.attach(job.state)
    job.save(1)
    assert job.tiers.newest() is None
    job.tiers.close()
    assert [record.message for record in caplog.records if "tierckpt.dcp is off" in record.message]
    assert not list(site.dir.glob("run/*"))
