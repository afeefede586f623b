# SPDX-License-Identifier: Apache-2.0
"""save, async_save and load with the arguments of torch.distributed.checkpoint and nothing before them."""

import importlib
import io
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.format_utils import torch_save_to_dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.fsdp import FullyShardedDataParallel, StateDictType

import tearing
import tierckpt
import tierckpt.dcp as dcp
from harness import Job, Nursery, die, run
from test_dcp import STEPS, Resumable
from tierckpt.adapters import dcp_directory, dcp_functions

NURSERY = "test_dcp_lines"


@pytest.fixture(scope="module")
def nursery(job_site, tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("nursery"), NURSERY) as nursery:
        yield nursery


@pytest.fixture
def here(job_site, tmp_path, monkeypatch):
    """An empty working directory, and a program that has not used the functions yet."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    dcp.close(job_done=True)


def state(value, **more):
    return {"model": {"w": torch.full((6,), float(value))}, "step": value, **more}


def loaded(checkpoint_id, **more):
    found = state(0, **more)
    dcp.load(found, checkpoint_id=checkpoint_id)
    return found


def value_of(checkpoint_id):
    found = loaded(checkpoint_id)
    assert found["model"]["w"].tolist() == [float(found["step"])] * 6
    return found["step"]


def sources():
    """Whether the last load of each series was one from memory."""
    return [series.tiers.attached and series.tiers.restored is not None
            for series in dcp_functions.program._series.values()]


@pytest.mark.parametrize("checkpoint_id", ["checkpoint", "runs/step-120", "120", "runs/step-7/model"])
def test_what_is_saved_is_in_its_directory_and_loaded_from_memory(here, checkpoint_id):
    dcp.save(state(3), checkpoint_id=checkpoint_id)
    assert (here / checkpoint_id / "manifest.json").exists()
    assert value_of(checkpoint_id) == 3
    assert sources() == [True]


def test_all_ids_of_a_series_stay(here):
    for step in (100, 200, 300, 400):
        dcp.save(state(step), checkpoint_id=f"runs/step-{step}")
    assert [value_of(f"runs/step-{step}") for step in (400, 100, 300)] == [400, 100, 300]


def test_same_id_or_an_earlier_number_is_saved_again(here):
    for checkpoint_id, value in (("a", 1), ("a", 2), ("s-5", 3), ("s-5", 4), ("s-3", 5)):
        dcp.save(state(value), checkpoint_id=checkpoint_id)
    assert [value_of(checkpoint_id) for checkpoint_id in ("a", "s-5", "s-3")] == [2, 4, 5]


def test_another_program_loads_the_directory_also_if_it_was_moved(here, job_site):
    dcp.save(state(3), checkpoint_id="runs/step-5")
    dcp.close(job_done=True)
    job_site.kill_agents()
    os.rename("runs/step-5", "elsewhere")
    assert value_of("elsewhere") == 3
    assert sources() == [False]


def test_layouts_may_differ_within_a_series_and_parts_are_loaded(here):
    dcp.save(state(1), checkpoint_id="s-1")
    dcp.save(state(2, more={"bias": torch.ones(3)}), checkpoint_id="s-2")
    dcp.save(state(3, text="x" * 300_000), checkpoint_id="s-3")
    assert [value_of(f"s-{step}") for step in (3, 2, 1)] == [3, 2, 1]
    assert loaded("s-3", text="")["text"] == "x" * 300_000
    assert loaded("s-2", more={"bias": torch.zeros(3)})["more"]["bias"].tolist() == [1.0] * 3


def test_model_and_optimizer_are_saved_alternately(here):
    for step in (1, 2):
        dcp.save({"w": torch.full((4,), float(step))}, checkpoint_id=f"{step}/model")
        dcp.save({"m": torch.full((9,), float(step))}, checkpoint_id=f"{step}/optim")
    weights, moments = {"w": torch.zeros(4)}, {"m": torch.zeros(9)}
    dcp.load(weights, checkpoint_id="2/model")
    dcp.load(moments, checkpoint_id="1/optim")
    assert weights["w"].tolist() == [2.0] * 4 and moments["m"].tolist() == [1.0] * 9


def test_async_save_may_be_followed_by_any_change(here):
    saved = state(4)
    future = dcp.async_save(saved, checkpoint_id="s-1")
    saved["model"]["w"].zero_()
    future.result()
    assert future.upload_completion.done() and future.staging_completion.done()
    assert value_of("s-1") == 4


def test_saves_in_the_background_follow_each_other(here):
    futures = [dcp.async_save(state(step), checkpoint_id=f"s-{step}") for step in (1, 2, 3)]
    assert futures[0].done() and futures[1].done()
    futures[2].result()
    assert [value_of(f"s-{step}") for step in (1, 2, 3)] == [1, 2, 3]


class Counter:
    """A Stateful object with a leaf that no JSON can hold, as the trainer's state in some frameworks."""

    def __init__(self, step):
        self.step = step

    def state_dict(self):
        buffer = io.BytesIO()
        torch.save(self.step, buffer)
        return {"step": buffer, "seen": {self.step}}

    def load_state_dict(self, found):
        found["step"].seek(0)
        self.step = torch.load(found["step"])
        assert found["seen"] == {self.step}


def test_stateful_objects_and_pickled_leaves_are_as_in_dcp(here):
    dcp.save({"train_state": Counter(5), **state(5)}, checkpoint_id="checkpoint")
    other = {"train_state": Counter(0), **state(0)}
    dcp.load(other, checkpoint_id="checkpoint")
    assert other["train_state"].step == 5 and other["step"] == 5


def test_directory_of_torch_is_loaded(here):
    stock.save(state(6), checkpoint_id="theirs", no_dist=True)
    assert value_of("theirs") == 6
    dcp.save(state(7), checkpoint_id="theirs")
    assert value_of("theirs") == 7


def test_directory_that_torch_has_converted_from_a_file_is_loaded(here):
    torch.save(state(6, text="x"), "saved.pt")
    torch_save_to_dcp("saved.pt", "converted")
    assert value_of("converted") == 6 and loaded("converted", text="")["text"] == "x"
    dcp.save(state(7), checkpoint_id="converted")
    assert value_of("converted") == 7


def test_directory_that_torch_has_written_over_ours_is_loaded(here):
    dcp.save(state(5), checkpoint_id="x")
    stock.save(state(6), checkpoint_id="x", no_dist=True)
    assert value_of("x") == 6


def test_save_over_a_directory_of_torch_is_loaded_although_it_is_due_for_memory_only(here):
    stock.save(state(6), checkpoint_id="x", no_dist=True)
    dcp.configure(overrides={"save_storage_interval": 2})
    dcp.save(state(7), checkpoint_id="x")
    assert value_of("x") == 7


def test_training_continues_from_the_directory_of_an_earlier_number(here):
    for step in range(100, 700, 100):
        dcp.save(state(step), checkpoint_id=f"s-{step}")
    assert value_of("s-100") == 100 and sources() == [False]
    dcp.save(state(101), checkpoint_id="s-101")
    assert value_of("s-101") == 101


def test_directory_that_was_moved_to_another_number_is_loaded_by_its_path(here):
    for step in (90, 100):
        dcp.save(state(step), checkpoint_id=f"s-{step}")
    shutil.rmtree("s-100")
    os.rename("s-90", "s-100")
    assert value_of("s-100") == 90


def test_modules_of_torch_are_not_imported_a_second_time():
    assert dcp.FileSystemReader is stock.FileSystemReader
    with pytest.raises(ModuleNotFoundError, match="'tierckpt.dcp' is not a package"):
        importlib.import_module("tierckpt.dcp.metadata")


def test_writer_and_reader_of_torch_work_by_themselves(here):
    dcp.save(state(8), storage_writer=dcp.FileSystemWriter("theirs"))
    assert os.path.exists("theirs/.metadata") and not os.path.exists(".tierckpt")
    found = state(0)
    dcp.load(found, storage_reader=dcp.FileSystemReader("theirs"))
    assert found["step"] == 8


def test_what_was_not_saved_is_not_found_and_leaves_nothing(here):
    with pytest.raises(tierckpt.NotFoundError, match="nothing was saved as .*/checkpoint: "):
        dcp.load(state(0), checkpoint_id="checkpoint")
    assert os.listdir() == []


def test_transforming_planner_and_other_processes_are_refused(here):
    class Halves(stock.DefaultSavePlanner):
        def transform_object(self, write_item, object):
            return super().transform_object(write_item, object)

    with pytest.raises(CheckpointException, match="Halves is not supported"):
        dcp.save(state(1), checkpoint_id="checkpoint", planner=Halves())
    with pytest.raises(tierckpt.UnsupportedError, match="the place of AsyncCheckpointerType.PROCESS"):
        dcp.async_save(state(1), checkpoint_id="checkpoint", async_checkpointer_type=AsyncCheckpointerType.PROCESS)
    assert not os.path.exists("checkpoint")


def test_planner_that_only_plans_is_used(here):
    dcp.save(state(2), checkpoint_id="checkpoint", planner=dcp.DefaultSavePlanner(enable_plan_caching=True))
    found = {"model": {"w": torch.zeros(6)}, "step": 0, "absent": 1}
    dcp.load(found, checkpoint_id="checkpoint", planner=dcp.DefaultLoadPlanner(allow_partial_load=True))
    assert found["step"] == 2 and found["absent"] == 1


def test_with_an_interval_other_saves_stay_in_memory(here, job_site):
    dcp.configure(overrides={"save_storage_interval": 2})
    for step in (1, 2, 3):
        dcp.save(state(step), checkpoint_id=f"s-{step}")
    assert [os.path.exists(f"s-{step}") for step in (1, 2, 3)] == [False, True, False]
    assert value_of("s-3") == 3
    dcp.close(job_done=False)
    dcp.configure(overrides={"save_storage_interval": 2})
    assert value_of("s-3") == 3
    assert value_of("s-2") == 2


def wide(value):
    return {"model": {"w": torch.full((30_000,), value)}, "optim": {"m": torch.full((30_000,), value + 1)}}


@pytest.fixture
def torn(here, monkeypatch):
    """A state dict of which a load of memory has failed while it copied."""
    dcp.configure(overrides={"save_storage_interval": 4})
    dcp.save(wide(3.0), checkpoint_id="s-4")
    dcp.save(wide(tearing.PATTERN), checkpoint_id="s-5")
    into = wide(0.0)
    tearing.tear(lambda: dcp.load(into, checkpoint_id="s-5"), monkeypatch)
    return into


def is_torn():
    series, = dcp_functions.program._series.values()
    return series.tiers.torn


def test_what_a_failed_load_has_left_is_not_saved_by_another_attach(torn):
    for step, state_dict in ((6, torn), (6, {**torn, "more": 1}), (4, torn)):
        with pytest.raises(tierckpt.CorruptError, match="nothing is saved: a load failed after it had begun to write"):
            dcp.save(state_dict, checkpoint_id=f"s-{step}")
    assert is_torn()


def test_a_load_of_all_makes_saves_possible_again_and_one_of_a_part_does_not(torn, here):
    stock.save({"model": wide(7.0)["model"]}, checkpoint_id="s-6", no_dist=True)
    stock.save(wide(8.0), checkpoint_id="s-7", no_dist=True)
    dcp.load({"model": torn["model"]}, checkpoint_id="s-6")
    assert is_torn()
    with pytest.raises(CheckpointException, match="load all of it, not a part"):
        dcp.load({"model": torn["model"]}, checkpoint_id="s-4")
    dcp.load(torn, checkpoint_id="s-7")
    assert not is_torn() and torn["optim"]["m"].unique().tolist() == [9.0]
    dcp.save(torn, checkpoint_id="s-8")
    assert dcp_functions.program._series.popitem()[1].tiers.found(8).step == 8


def test_a_load_by_torch_of_another_layout_makes_saves_possible_again(here, job_site, monkeypatch):
    config = {**job_site.config, "job": "parts"}
    with dcp.attach({**wide(4.0), "more": torch.ones(3)}, config=config) as tiers:
        stock.save({**wide(4.0), "more": torch.ones(3)}, storage_writer=tiers.writer(4, to_storage=True))
    with dcp.attach(wide(0.0), config=config) as tiers:
        stock.save(wide(tearing.PATTERN), storage_writer=tiers.writer(5, to_storage=False))
        into = wide(0.0)
        tearing.tear(lambda: stock.load(into, storage_reader=tiers.reader(5)), monkeypatch)
        part = {"model": into["model"]}
        stock.load(part, storage_reader=tiers.reader(4))
        assert tiers.torn
        stock.load(into, storage_reader=tiers.reader(4))
        assert not tiers.torn and into["optim"]["m"].unique().tolist() == [5.0]
        stock.save(into, storage_writer=tiers.writer(6, to_storage=False))


def kept_in_memory_alone(rank, world, directory):
    """The same id twice, the second time in memory only; then all ranks are killed."""
    os.chdir(directory)
    dcp.configure(overrides={"save_storage_interval": 2})
    for value in (1, 2, 3):
        dcp.save({"w": torch.full((5,), float(value))}, checkpoint_id="checkpoint")
    if world > 1:
        dist.barrier()
    die()


def loaded_by(rank, world, directory):
    os.chdir(directory)
    dcp.configure(overrides={"save_storage_interval": 2})
    found = {"w": torch.zeros(5)}
    dcp.load(found, checkpoint_id="checkpoint")
    return found["w"].unique().tolist()


@pytest.mark.parametrize("world", [1, 2])
def test_what_only_memory_has_is_never_passed_over_for_the_directory(tmp_path, nursery, world):
    with Job(tmp_path, "test_dcp_lines:kept_in_memory_alone", nursery=nursery, directory=str(tmp_path)) as job:
        job.killed()
    assert run(tmp_path, "test_dcp_lines:loaded_by", nursery=nursery, world=world, directory=str(tmp_path)) \
        == [[3.0]] * world


def loaded_beside(rank, world, directory):
    """Another program loads what this one has on storage, while this one goes on."""
    os.chdir(directory)
    dcp.save({"w": torch.ones(5)}, checkpoint_id="s-1")
    beside = "import torch, tierckpt.dcp as dcp; found = {'w': torch.zeros(5)}; " \
             "dcp.load(found, checkpoint_id='s-1'); print(found['w'].sum().item())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.run([sys.executable, "-c", beside], env=environment, check=True, capture_output=True).stdout
    dcp.save({"w": torch.ones(5)}, checkpoint_id="s-2")
    return printed.decode()


def newer_in_memory_beside(rank, world, directory):
    """Another program loads an id whose newer version only the memory of this running one has."""
    os.chdir(directory)
    dcp.configure(overrides={"save_storage_interval": 2})
    for value in (1, 2, 3):
        dcp.save({"w": torch.full((5,), float(value))}, checkpoint_id="x")
    beside = "import torch, tierckpt.dcp as dcp; dcp.configure(overrides={'save_storage_interval': 2}); " \
             "dcp.load({'w': torch.zeros(5)}, checkpoint_id='x')"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-c", beside], env=environment, check=True, text=True,
                          capture_output=True).stderr


def test_what_memory_of_a_running_program_has_newer_is_passed_over_with_a_warning(tmp_path, nursery):
    said, = run(tmp_path, "test_dcp_lines:newer_in_memory_beside", nursery=nursery, directory=str(tmp_path))
    assert "step 2 is loaded from its directory, although step 3 in memory is newer" in said


def errors_beside(directory, *ids):
    """What the loads of another program raise, as lines of a class and a text."""
    beside = "import torch, tierckpt, tierckpt.dcp as dcp\n" \
             "dcp.configure(overrides={'save_storage_interval': 2, 'takeover': 'on'})\n" \
             f"for one in {ids!r}:\n" \
             "    try:\n        dcp.load({'w': torch.zeros(5)}, checkpoint_id=one)\n" \
             "    except tierckpt.Error as error:\n        print(type(error).__name__, error)\n"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", beside], env=environment, cwd=directory, check=True, text=True,
                          capture_output=True)
    return done.stdout.splitlines()


def not_on_storage_beside(rank, world, directory):
    """Another program loads ids that have no directory; then this one saves, and loads what it has in memory."""
    os.chdir(directory)
    dcp.configure(overrides={"save_storage_interval": 2})
    for step in (1, 2, 3):
        dcp.save({"w": torch.full((5,), float(step))}, checkpoint_id=f"s-{step}")
    said = errors_beside(directory, "s-3", "s-4")
    dcp.save({"w": torch.full((5,), 5.0)}, checkpoint_id="s-5")
    found = {"w": torch.zeros(5)}
    dcp.load(found, checkpoint_id="s-5")
    return [said, found["w"].unique().tolist()]


def test_id_that_is_not_on_storage_is_an_error_beside_living_trainers_and_leaves_them_alone(tmp_path, nursery):
    (said, found), = run(tmp_path, "test_dcp_lines:not_on_storage_beside", nursery=nursery, directory=str(tmp_path))
    in_memory, never_saved = said
    assert in_memory.startswith(f"ExistsError {tmp_path}/s-3 is not on storage: step 3 of it is in the memory of ")
    assert never_saved == f"NotFoundError nothing was saved as {tmp_path}/s-4: there is no checkpoint there, and " \
                          f"trainers of {tmp_path}/s-# are alive, whose memory has step 3 as its newest"
    assert found == [5.0]


def saved_in_memory_alone(rank, world, directory):
    """An id that gets no directory; then the program is killed."""
    os.chdir(directory)
    dcp.configure(overrides={"save_storage_interval": 2})
    dcp.save({"w": torch.full((5,), 1.0)}, checkpoint_id="s-1")
    die()


def loaded_from_memory_alone(rank, world, directory):
    os.chdir(directory)
    dcp.configure(overrides={"save_storage_interval": 2})
    found = {"w": torch.zeros(5)}
    dcp.load(found, checkpoint_id="s-1")
    return found["w"].unique().tolist()


def test_what_has_no_directory_is_loaded_from_the_memory_of_a_job_that_has_ended(tmp_path, nursery):
    with Job(tmp_path, "test_dcp_lines:saved_in_memory_alone", nursery=nursery, directory=str(tmp_path)) as job:
        job.killed()
    assert not (tmp_path / "s-1").exists()
    assert run(tmp_path, "test_dcp_lines:loaded_from_memory_alone", nursery=nursery, directory=str(tmp_path)) == [[1.0]]


def test_directory_that_a_killed_save_has_moved_aside_is_loaded(here, job_site):
    for name, module in (("ours", dcp), ("theirs", stock)):
        module.save(state(3), checkpoint_id=name, no_dist=True)
    dcp.close(job_done=True)
    job_site.kill_agents()
    for name in ("ours", "theirs"):
        os.rename(name, dcp_directory._sibling(here / name, "old"))
    assert [value_of(name) for name in ("ours", "theirs")] == [3, 3]
    dcp.save(state(4), checkpoint_id="ours")
    assert value_of("ours") == 4 and not dcp_directory._sibling(here / "ours", "old").exists()


def test_directory_that_is_replaced_before_it_is_opened_is_loaded(here, job_site, monkeypatch):
    """The reader is made while a save has moved the directory aside, and opens it after the save has ended."""
    dcp.save(state(3), checkpoint_id="x")
    dcp.close(job_done=True)
    job_site.kill_agents()
    places = iter([str(dcp_directory._sibling(here / "x", "old")), str(here / "x")])
    monkeypatch.setattr(dcp_directory, "present", lambda path: next(places))
    assert value_of("x") == 3
    monkeypatch.setattr(dcp_directory, "present", lambda path: f"{path}.gone")
    with pytest.raises(CheckpointException, match="x is being replaced by another program: load it again"):
        value_of("x")


def test_another_program_loads_while_the_first_one_goes_on(tmp_path, nursery):
    assert run(tmp_path, "test_dcp_lines:loaded_beside", nursery=nursery, directory=str(tmp_path)) == ["5.0\n"]


def test_configuration_of_the_environment_names_job_and_directory(here, monkeypatch):
    (here / "config.json").write_text(json.dumps({"job": "mine", "save_dir": "below"}))
    monkeypatch.setenv("TIERCKPT_CONFIG", str(here / "config.json"))
    dcp.save(state(1), checkpoint_id="below/any/where-5")
    job, = (path.name for path in (here / "below").iterdir() if path.name.startswith("mine-"))
    assert (here / "below" / job / "LATEST").exists() and value_of("below/any/where-5") == 1


def test_other_file_system_is_one_error_before_anything_is_saved(here, tmp_path):
    if os.stat("/dev/shm").st_dev == os.stat(tmp_path).st_dev:
        pytest.skip("/dev/shm is not another file system than the one of the tests")
    dcp.configure(overrides={"save_dir": "/dev/shm"})
    with pytest.raises(tierckpt.ConfigError, match="is on another file system than save_dir /dev/shm"):
        dcp.save(state(1), checkpoint_id="checkpoint")
    assert os.listdir() == []


def test_more_series_than_a_process_keeps_open_are_told_of_and_saved(here, caplog):
    for name in "abcdef":
        dcp.save(state(ord(name)), checkpoint_id=name)
    assert [value_of(name) for name in "af"] == [ord("a"), ord("f")]
    assert sum("series of checkpoint ids are in use" in record.message for record in caplog.records) > 0


# ---- several ranks


def train(rank, world, directory, die_at=None):
    """A loop that saves in the background and loads the newest of its directories. Returns [step resumed at, losses,
    digest]."""
    os.chdir(directory)
    job, group = Resumable(rank, "fsdp"), dist.new_group()
    resumed = max([0, *(int(name.removeprefix("step-")) for name in os.listdir() if name.startswith("step-"))])
    if resumed:
        state = job.state()
        dcp.load(state, checkpoint_id=f"step-{resumed}")
        job.put(state)
    losses = []
    for step in range(resumed + 1, STEPS + 1):
        losses.append(job.step())
        future = dcp.async_save(job.state(), checkpoint_id=f"step-{step}", process_group=group)
        if step == die_at:
            future.result()
            dist.barrier()
            die()
    future.result()
    return [resumed, losses, job.digest()]


def test_killed_loop_of_two_ranks_goes_on_with_equal_bits(tmp_path, nursery):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    whole = run(tmp_path, "test_dcp_lines:train", nursery=nursery, world=2, directory=str(tmp_path / "whole"))
    killed = {"nursery": nursery, "world": 2, "directory": str(tmp_path / "killed")}
    with Job(tmp_path, "test_dcp_lines:train", die_at=3, **killed) as job:
        job.killed()
    for (first, losses, digest), (_, all_losses, all_digest) in zip(
            run(tmp_path, "test_dcp_lines:train", **killed), whole, strict=True):
        assert first == 3 and losses == all_losses[3:] and digest == all_digest


def flat_parameters(seed):
    """A model whose optimizer has two groups and whose parameters are not all trained, which FullyShardedDataParallel
    takes with use_orig_params=True alone. No rank has a part of every parameter."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3))
    model[0].bias.requires_grad_(False)
    model = FullyShardedDataParallel(model, use_orig_params=True, device_id=torch.device("cpu"))
    weights = [param for name, param in model.named_parameters() if name.endswith("weight")]
    optimizer = torch.optim.AdamW([{"params": weights, "lr": 0.1 / (1 + seed)}, {"params": [model.module[2].bias]}])
    for _ in range(2):
        model(torch.randn(4, 7)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return model, optimizer


def bits_of(model, optimizer):
    """All bits of the whole model and of its optimizer."""
    with FullyShardedDataParallel.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        weights = {name: tensor.tolist() for name, tensor in model.state_dict().items()}
    found = FullyShardedDataParallel.full_optim_state_dict(model, optimizer, rank0_only=False)
    moments = {name: {key: value.tolist() for key, value in state.items()} for name, state in found["state"].items()}
    return [weights, moments, [[group["lr"], group["params"]] for group in found["param_groups"]]]


def save_flat_parameters(rank, world, directory):
    os.chdir(directory)
    model, optimizer = flat_parameters(0)
    weights, moments = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": moments}, checkpoint_id="step-2")
    return bits_of(model, optimizer)


def load_flat_parameters(rank, world, directory):
    os.chdir(directory)
    model, optimizer = flat_parameters(9)
    weights, moments = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id="step-2")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
    return bits_of(model, optimizer)


def test_original_parameters_of_fsdp_are_loaded_by_as_many_ranks_and_more(tmp_path, nursery):
    arguments = {"nursery": nursery, "directory": str(tmp_path)}
    saved, *others = run(tmp_path, "test_dcp_lines:save_flat_parameters", world=2, **arguments)
    assert others == [saved]
    for world in (2, 3):
        assert run(tmp_path, "test_dcp_lines:load_flat_parameters", world=world, **arguments) == [saved] * world


def in_parts(rank, world, directory):
    """Ranks 0 and 1, and 2 and 3, save by themselves, as with HYBRID_SHARD; then each rank alone."""
    os.chdir(directory)
    groups = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    half = rank // 2
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2))
    whole = torch.arange(8.0) * (1 + half)
    sharded = dist.tensor.distribute_tensor(torch.arange(8.0), mesh, [dist.tensor.Replicate(), dist.tensor.Shard(0)])
    if half:
        dcp.configure(replicate_group=groups[half])  # which rank 3 alone does not need
    mine = {"all": whole.clone(), "sharded": sharded.clone(), "half": half}
    dcp.save(mine, checkpoint_id=f"half_{'ab'[half]}", process_group=groups[half])
    dcp.save({"rank": rank, "t": torch.tensor(rank)}, checkpoint_id=f"alone/{'wxyz'[rank]}", no_dist=True)
    found = {"all": torch.zeros(8), "sharded": sharded * 0, "half": None}
    dcp.load(found, checkpoint_id=f"half_{'ab'[half]}", process_group=groups[half])
    alone = {"rank": None, "t": torch.tensor(9)}
    dcp.load(alone, checkpoint_id=f"alone/{'wxyz'[rank]}", no_dist=True)
    return [torch.equal(found["all"], whole), torch.equal(found["sharded"].to_local(), sharded.to_local()),
            found["half"] == half, alone["rank"] == int(alone["t"]) == rank]


def fails_on_one_rank(rank, world, directory):
    """Returns the errors of a load whose directory rank 0 cannot read, and of a save that rank 1 cannot make."""
    os.chdir(directory)
    texts = []
    not_pickled = (lambda: 0) if rank == 1 else 0
    dcp.save({"w": torch.ones(5), "leaf": 0}, checkpoint_id="x")
    for use in (lambda: dcp.load({"w": torch.zeros(5)}, checkpoint_id="damaged"),
                lambda: dcp.save({"w": torch.ones(5), "leaf": not_pickled}, checkpoint_id="x")):
        try:
            use()
        except Exception as error:  # that of the program itself on the rank that fails
            texts.append(str(error))
    return texts


def test_error_of_one_rank_is_one_of_all_ranks_and_nobody_waits(tmp_path, nursery):
    (tmp_path / "damaged").mkdir()
    (tmp_path / "damaged/manifest.json").write_text("{")
    (read, saved), (other_read, other_saved) = run(tmp_path, "test_dcp_lines:fails_on_one_rank", nursery=nursery,
                                                   world=2, directory=str(tmp_path))
    assert "manifest.json cannot be read" in read and "nothing is loaded, as rank 0 cannot" in other_read
    assert "nothing is saved, as rank 1 cannot" in saved and "Can't pickle" in other_saved


def trains_meanwhile(rank, world, directory):
    """Returns what the collectives of a training came to that did not wait for its saves."""
    os.chdir(directory)
    sums = set()
    for step in range(1, 9):
        future = dcp.async_save(state(step), checkpoint_id=f"s-{step}")
        for number in range(300):
            value = torch.tensor(float(rank + number))
            dist.all_reduce(value)
            sums.add(float(value) - world * number)
    future.result(60)
    return [sorted(sums), value_of("s-8")]


def test_collectives_of_a_training_never_meet_those_of_a_save_in_the_background(tmp_path, nursery):
    assert run(tmp_path, "test_dcp_lines:trains_meanwhile", nursery=nursery, world=2, directory=str(tmp_path)) \
        == [[[1.0], 8]] * 2


def test_process_group_and_no_dist_say_who_saves(tmp_path, nursery):
    assert run(tmp_path, "test_dcp_lines:in_parts", nursery=nursery, world=4, directory=str(tmp_path)) \
        == [[True] * 4] * 4
