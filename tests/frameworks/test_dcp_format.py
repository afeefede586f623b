# SPDX-License-Identifier: Apache-2.0
"""storage_format dcp: stock PyTorch opens published versions without us, and nothing else changes."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as stock
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

import tierckpt.dcp
from harness import run
from test_dcp import Resumable, whole
from test_published import assert_loads
from tierckpt.adapters import dcp_directory
from tierckpt.runtime.world import Oob, World
from tierckpt.state import dcp_files
from tierckpt.state.records import TORCH_DTYPES

NURSERY = "test_dcp_format"
LOADER = Path(__file__).with_name("stock_dcp.py")
DTYPES = [*TORCH_DTYPES.values(), torch.complex128, torch.complex32, torch.float8_e4m3fnuz, torch.float8_e8m0fnu]
SHAPES = [(), (1,), (7,), (0,), (3, 0), (5, 3), (2, 1, 3, 1, 2, 1, 2)]


@pytest.fixture
def config(site):
    return {**site.config, "storage_format": "dcp"}


def load(directory, reference, store=None, rank=0, world=1):
    command = [sys.executable, "-I", str(LOADER), str(directory), str(reference), *([str(store)] if store else [])]
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def loads_everywhere(tmp_path, directory, reference, worlds=(2, 3)):
    assert_loads([load(directory, reference)])
    for world in worlds:
        assert_loads([load(directory, reference, tmp_path / f"store{world}", rank, world) for rank in range(world)])


def version_of(config, step=None):
    names = sorted(Path(config["save_dir"], config["job"]).glob("v*" if step is None else f"v{step:012d}.*"))
    return names[-1]


def of_any_bits(dtype, shape):
    numbers = torch.randint(0, 2, (torch.Size(shape).numel() * dtype.itemsize,), dtype=torch.uint8)
    return numbers.view(dtype).reshape(shape) if numbers.numel() else torch.empty(shape, dtype=dtype)


def bits(tensor):
    return tensor.dtype, tensor.shape, tensor.contiguous().reshape(-1).view(torch.uint8).tolist()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_head_and_numbers_are_what_torch_load_reads(dtype, shape):
    tensor = of_any_bits(dtype, shape)
    numbers = bytes(tensor.reshape(-1).view(torch.uint8).tolist())
    data = dcp_files.tensor_head(dtype, shape) + numbers
    assert bits(torch.load(io.BytesIO(data), weights_only=True)) == bits(tensor)
    assert len(data) - len(numbers) < 1024


def test_a_value_may_be_followed_by_zeros():
    for value in (None, 7, 0.5, "text", [1, {"a": (2, b"x")}], io.BytesIO(b"y")):
        data = dcp_files.value_bytes(value)
        found = torch.load(io.BytesIO(data + bytes(1000)), weights_only=False)
        assert found == value or found.getvalue() == value.getvalue()


# ---- the writer of tierckpt.dcp


def all_kinds():
    kinds = {f"{dtype}{shape}".replace(".", "_"): of_any_bits(dtype, shape) for dtype in DTYPES for shape in SHAPES}
    return {"tensors": kinds, "not contiguous": torch.arange(12.0).reshape(3, 4).t(), "large": torch.rand(600, 700),
            "step": 7, "rates": [0.1, {"b": 2}], "name": "x" * 300, "nothing": None, "flag": True,
            "place": (3, "c"), "buffer": io.BytesIO(b"some bytes"), "list": [torch.ones(3), torch.zeros(2, 2)]}


def test_stock_pytorch_loads_every_kind_of_value(tmp_path, config):
    state = all_kinds()
    with tierckpt.dcp.attach(state, config=config) as tiers:
        stock.save(state, checkpoint_id=1, storage_writer=tiers.writer(to_storage=True))
    torch.save(state, tmp_path / "reference.pt")
    assert_loads([load(version_of(config), tmp_path / "reference.pt")])


def test_our_own_readers_load_the_same_version(config):
    state = all_kinds()

    def empty():
        return {**state, "tensors": {key: torch.zeros_like(tensor) for key, tensor in state["tensors"].items()},
                "large": torch.zeros(600, 700), "step": 0}

    def check(found):
        assert found["step"] == 7 and torch.equal(found["large"], state["large"])
        assert {key: bits(tensor) for key, tensor in found["tensors"].items()} == \
            {key: bits(tensor) for key, tensor in state["tensors"].items()}

    with tierckpt.dcp.attach(state, config=config) as tiers:
        stock.save(state, checkpoint_id=1, storage_writer=tiers.writer(to_storage=True))
        found = empty()
        stock.load(found, storage_reader=tiers.reader())
        check(found)
    found = empty()
    stock.load(found, storage_reader=tierckpt.dcp.StorageReader(config))
    check(found)
    other = {"tensors": {key: torch.zeros(tensor.shape, dtype=torch.complex64)
                         for key, tensor in state["tensors"].items() if tensor.dtype == torch.complex128}}
    stock.load(other, storage_reader=tierckpt.dcp.StorageReader(config))
    for key, tensor in other["tensors"].items():
        assert torch.equal(tensor, state["tensors"][key].to(torch.complex64)) or tensor.isnan().any()


def save_sharded(rank, world, config, reference):
    """DTensors, replicated ones, plain tensors of each rank, and other values."""
    job = Resumable(rank, "hsdp" if world == 4 else "fsdp")
    mesh = init_device_mesh("cpu", (world,))
    torch.manual_seed(1)
    replicated = distribute_tensor(torch.rand(3, 5), mesh, [Replicate()])
    uneven = distribute_tensor(torch.rand(world + 1, 2), mesh, [Shard(0)])
    for _ in range(2):
        job.step()
    state = {**job.state(), "replicated": replicated, "uneven": uneven, "own": torch.full((4,), float(rank)),
             "of rank": rank, f"only of {rank}": torch.full((2,), rank), f"value of {rank}": f"v{rank}"}
    with tierckpt.dcp.attach(state, config=config) as tiers:
        stock.save(state, checkpoint_id=2, storage_writer=tiers.writer(to_storage=True))
        expected = {}
        for of_rank in reversed(tiers.world.gather({key: whole(value) for key, value in state.items()})):
            expected.update(of_rank)
        if rank == 0:
            torch.save(expected, reference)
        dist.barrier()
        tiers.close(job_done=False)


@pytest.mark.parametrize("world", [2, 4])
def test_stock_pytorch_loads_what_several_ranks_saved(tmp_path, config, nursery, world):
    reference = tmp_path / "reference.pt"
    run(tmp_path, "test_dcp_format:save_sharded", nursery=nursery, world=world, config=config,
        reference=str(reference))
    loads_everywhere(tmp_path, version_of(config), reference, (3,) if world == 4 else (2, 3))


def test_our_own_readers_load_it_with_other_numbers_of_ranks(tmp_path, config, nursery):
    reference = tmp_path / "reference.pt"
    run(tmp_path, "test_dcp:save_steps", nursery=nursery, world=2, config=config, reference=str(reference), storage=3,
        memory=3)
    for world, attached in ((1, False), (4, False), (1, True)):
        assert run(tmp_path, "test_dcp:load_steps", nursery=nursery, world=world, config=config, attached=attached,
                   reference=str(reference)) == [[3, 3, True]] * world


def save_until(rank, world, config, last):
    state = {"w": distribute_tensor(torch.zeros(64, 3), init_device_mesh("cpu", (world,)), [Shard(0)]), "step": 0}
    with tierckpt.dcp.attach(state, config=config) as tiers:
        first = (tiers.newest() or 0) + 1
        if first > 1:
            stock.load(state, storage_reader=tiers.reader())
            assert state["step"] == first - 1
        for step in range(first, last + 1):
            torch.nn.init.constant_(state["w"].to_local(), step)
            state["step"] = step
            stock.save(state, checkpoint_id=step, storage_writer=tiers.writer(to_storage=step % 2 == 0))
        tiers.close(job_done=False)
    return first


def test_metadata_outlives_restarts_and_goes_with_its_version(tmp_path, site, config, nursery):
    config = {**config, "max_ckpt_num": 2}
    arguments = {"nursery": nursery, "world": 2, "config": config}
    assert run(tmp_path, "test_dcp_format:save_until", last=4, **arguments) == [1, 1]
    assert run(tmp_path, "test_dcp_format:save_until", last=5, **arguments) == [5, 5]
    site.kill_agents()
    assert run(tmp_path, "test_dcp_format:save_until", last=8, **arguments) == [5, 5]
    torch.save({"w": torch.full((64, 3), 8.0), "step": 8}, tmp_path / "reference.pt")
    assert_loads([load(version_of(config), tmp_path / "reference.pt")])
    deadline = time.monotonic() + 20
    while len(found := sorted(Path(config["save_dir"], config["job"]).glob("v*/.metadata"))) > 2:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    assert [path.parent.name[:13] for path in found] == ["v000000000006", "v000000000008"]


def test_a_version_that_only_memory_had_gets_its_metadata_when_it_is_drained(tmp_path, config):
    state = {"w": torch.arange(5.0), "step": 3}
    with tierckpt.dcp.attach(state, config=config) as tiers:
        stock.save(state, checkpoint_id=3, storage_writer=tiers.writer())
        tiers.close(job_done=False)
    tierckpt.runtime.control.ask(config, None, "drain", "--wait")
    torch.save(state, tmp_path / "reference.pt")
    assert_loads([load(version_of(config), tmp_path / "reference.pt")])


def test_verify_names_metadata_that_is_damaged(config, tmp_path):
    state = {"w": torch.arange(5.0)}
    with tierckpt.dcp.attach(state, config=config) as tiers:
        stock.save(state, checkpoint_id=1, storage_writer=tiers.writer(to_storage=True))
    (tmp_path / "config.json").write_text(json.dumps(config))
    command = ["tierckpt", "verify", "published", "--config", str(tmp_path / "config.json")]
    assert subprocess.run(command, capture_output=True).returncode == 0
    path = version_of(config) / ".metadata"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode != 0 and ".metadata" in done.stdout + done.stderr


def test_scrub_finds_metadata_that_is_damaged(config, site):
    state = {"w": torch.arange(5.0)}
    with tierckpt.dcp.attach(state, config={**config, "scrub_storage_interval_s": 1}) as tiers:
        stock.save(state, checkpoint_id=1, storage_writer=tiers.writer(to_storage=True))
        path = version_of(config) / ".metadata"
        path.write_bytes(bytes(path.stat().st_size))
        deadline = time.monotonic() + 30
        while "a published file is damaged" not in site.logs() or "the file stays damaged: PyTorch" not in site.logs():
            assert time.monotonic() < deadline
            time.sleep(0.1)


def test_a_value_that_outgrows_its_room_is_refused_with_its_name(config):
    state = {"w": torch.zeros(3), "name": "x"}
    with tierckpt.dcp.attach(state, config=config) as tiers:
        stock.save(state, checkpoint_id=1, storage_writer=tiers.writer())
        state["name"] = "x" * 5000
        assert "name has grown" in tiers.obstacle(state)
        with pytest.raises(CheckpointException, match="name has grown to"):
            stock.save(state, checkpoint_id=2, storage_writer=tiers.writer())


def test_numbers_are_on_storage_once(config, site):
    state = {"w": torch.rand(1000, 1000), "step": 1}
    sizes = {}
    for name in ("dcp", "tierckpt"):
        own = {**config, "job": name, "storage_format": name}
        with tierckpt.dcp.attach(state, config=own) as tiers:
            stock.save(state, checkpoint_id=1, storage_writer=tiers.writer(to_storage=True))
        sizes[name] = sum(path.stat().st_size for path in version_of(own).iterdir())
    assert sizes["dcp"] < sizes["tierckpt"] + 100_000


def test_values_grow_and_another_start_goes_on_with_them(tmp_path, config):
    large, small = ["x" * 50_000], []
    state = {"w": torch.zeros(3), "log": small, "step": 1}
    with tierckpt.dcp.attach(state, config=config) as tiers:
        state["log"] = large
        stock.save(state, checkpoint_id=1, storage_writer=tiers.writer())
        tiers.close(job_done=False)
    state = {"w": torch.ones(3), "log": small, "step": 0}
    with tierckpt.dcp.attach(state, config=config) as tiers:
        stock.load(state, storage_reader=tiers.reader())
        assert state["log"] == large and tiers.restored is not None, "from memory"
        state["step"] = 2
        stock.save(state, checkpoint_id=2, storage_writer=tiers.writer(to_storage=True))
    torch.save(state, tmp_path / "reference.pt")
    assert_loads([load(version_of(config), tmp_path / "reference.pt")])


def test_values_that_torch_cannot_read_back_are_refused_with_their_name():
    values = {"step": 1, "scales": (torch.zeros(2, dtype=torch.uint16),)}
    with pytest.raises(tierckpt.UnsupportedError, match="scales"):
        dcp_files.DcpFiles(World(0, 1, Oob()), [], [], lambda: values, {})


def test_equal_plain_values_of_other_kinds_stay_apart():
    for value in (0.0, -0.0, 0, False, 1, True, 1.0, "1", (1, 2), (1.0, 2), (True, 2), (None,), ()):
        found = torch.load(io.BytesIO(dcp_files.value_bytes(value)), weights_only=False)
        assert repr(found) == repr(value)


def test_other_adapters_refuse_the_format_and_name_the_key(config):
    model = torch.nn.Linear(2, 2)
    with pytest.raises(tierckpt.ConfigError, match="storage_format"):
        tierckpt.init(model=model, optimizer=torch.optim.SGD(model.parameters(), 0.1), config=config)
    for name in ("zip", "framework"):
        with pytest.raises(tierckpt.ConfigError, match="storage_format"):
            tierckpt.dcp.attach({"w": torch.zeros(3)}, config={**config, "storage_format": name})


@pytest.mark.parametrize("formats", [("tierckpt", "dcp"), ("dcp", "tierckpt")], ids="-".join)
def test_the_format_may_change_between_starts(config, formats):
    """What only memory has in the other one is published first."""
    for step, name in enumerate(formats, 1):
        state = {"w": torch.full((1000,), 0.0 if step == 2 else 1.0), "step": 2 - step}
        with tierckpt.dcp.attach(state, config={**config, "storage_format": name}) as tiers:
            if step == 2:
                assert tiers.newest() == 1
                stock.load(state, storage_reader=tiers.reader())
                assert state["step"] == 1 and state["w"].unique().tolist() == [1.0]
            stock.save(state, checkpoint_id=step, storage_writer=tiers.writer())
            tiers.close(job_done=False)


# ---- calls with a checkpoint_id


@pytest.fixture
def lines(site, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ("runtime_dir", "net_address", "net_device", "copies", "linger_s", "memory_cap_bytes")
    tierckpt.dcp.configure({**{name: site.config[name] for name in names}, "storage_format": "dcp"})
    yield tmp_path
    tierckpt.dcp.close(job_done=True)


def test_directory_of_an_id_is_a_checkpoint_of_torch(lines):
    for step in (1, 2):
        tierckpt.dcp.save({"w": torch.full((6,), float(step)), "step": step}, checkpoint_id=f"runs/step-{step}")
    torch.save({"w": torch.full((6,), 1.0), "step": 1}, "reference.pt")
    assert_loads([load(lines / "runs/step-1", lines / "reference.pt")])
    found = {"w": torch.zeros(6), "step": 0}
    tierckpt.dcp.load(found, checkpoint_id="runs/step-1")
    assert found["step"] == 1
    assert not dcp_directory.is_of_torch("runs/step-1")
    stock.save({"w": torch.full((6,), 9.0), "step": 9}, checkpoint_id="runs/step-1", no_dist=True)
    assert dcp_directory.is_of_torch("runs/step-1")
    tierckpt.dcp.load(found, checkpoint_id="runs/step-1")
    assert found["step"] == 9
