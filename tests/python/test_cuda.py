# SPDX-License-Identifier: Apache-2.0
"""Tensors on CUDA devices. Tests that need a device are skipped without one."""

import contextlib
import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import tierckpt
from fake_client import FakeClient
from harness import run
from tierckpt import InvalidArgumentError, LayoutError, UnsupportedError
from tierckpt.adapters.reshard import load_any_layout
from tierckpt.core import pieces
from tierckpt.core.checkpoint import Checkpoint, Contents, attach
from tierckpt.runtime.world import join_world
from tierckpt.state import records
from tierckpt.state.blobs import Blob, BlobTable
from tierckpt.state.records import Record, RecordTable, whole

LARGE = 20 << 20  # elements of four bytes: more than one piece


@pytest.fixture
def device():
    """Only for tests in this process: a process that has queried CUDA cannot fork others that use a device."""
    if not torch.cuda.is_available():
        pytest.skip("skipped: no CUDA device")
    programs = os.environ.get("TIERCKPT_BIN_DIR")
    if programs is not None and not os.access(os.path.join(programs, "tierckptd"), os.X_OK):
        pytest.skip("skipped: built without the agent (TCK_AGENT=OFF)")


class Streams(FakeClient):
    def __init__(self):
        super().__init__()
        self.streams = []

    def register(self):
        pass

    def set_stream(self, device, stream):
        self.streams.append((device, stream))


def table_of(*tensors):
    return RecordTable([whole(f"t{i}", lambda tensor=tensor: tensor, None, eager=False)
                        for i, tensor in enumerate(tensors)])


def test_a_table_without_device_tensors_asks_for_no_stream():
    table, client = table_of(torch.ones(3)), Streams()
    table.add_to(client)
    table.tell_streams(client)
    assert client.streams == [] and not table.on_devices
    assert client.records[0]["cuda_device"] is None


def test_the_current_stream_of_each_device_is_passed_on(monkeypatch):
    tensors = torch.ones(3), torch.ones(4), torch.ones(5)
    places = {3: 1, 4: None, 5: 0}
    monkeypatch.setattr(records, "_cuda_device", lambda tensor: places[tensor.numel()])
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=100 + device))
    table, client = table_of(*tensors), Streams()
    table.add_to(client)
    table.tell_streams(client)
    assert table.on_devices and client.streams == [(0, 100), (1, 101)]
    assert [record["cuda_device"] for record in client.records] == [1, None, 0]


class Capture:
    """Replaces torch during a graph capture on one device: reading the generators' state fails."""

    def __init__(self, monkeypatch, device):
        self.current, self.asked = None, 0
        monkeypatch.setattr(records, "_cuda_device", lambda tensor: tensor.numel())
        monkeypatch.setattr(torch.cuda, "device", self._enter)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: self.current == device)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: SimpleNamespace(cuda_stream=0))

    @contextlib.contextmanager
    def _enter(self, device):
        self.current = device
        yield
        self.current = None

    def blob(self):
        self.asked += 1
        if self.asked > 1:  # the first time is at init, before any capture
            raise RuntimeError("Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture")
        return {}


@pytest.mark.parametrize("captured", [1, 2])
def test_a_save_in_a_graph_capture_is_refused_before_anything_else_is_asked_of_torch(monkeypatch, captured):
    capture, client = Capture(monkeypatch, captured), Streams()
    tensors = [whole(f"t{n}", lambda n=n: torch.ones(n), None, eager=False) for n in (1, 2)]
    blobs = [Blob("rng", capture.blob, lambda state: None)]
    checkpoint = Checkpoint(client, Contents(tensors, blobs), BlobTable(0, blobs), [])
    with pytest.raises(InvalidArgumentError, match=f"device {captured} is being captured"):
        checkpoint.save_checkpoint(1)
    assert client.streams == []


def test_a_tensor_of_no_known_device_is_refused():
    with pytest.raises(UnsupportedError, match="t0 is on the meta device"):
        table_of(torch.ones(3, device="meta"))


# ---- with a device


def model_of(seed):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(301, 1000), torch.nn.GELU(), torch.nn.Linear(1000, 7)).cuda()


def train(model, optimizer, steps):
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.randn(16, 301, device="cuda")).square().mean().backward()
        optimizer.step()


def saves_every_step(rank, world, config, stream):
    """Returns whether the restored state equals that on the device at the last save, although training continued at
    once."""
    model = model_of(0)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    torch.cuda.synchronize()
    side = torch.cuda.Stream() if stream else torch.cuda.current_stream()
    with torch.cuda.stream(side), tierckpt.init(model=model, optimizer=optimizer, config=config) as checkpoint:
        for step in range(1, 11):
            train(model, optimizer, 1)
            before = [parameter.detach().clone() for parameter in model.parameters()]
            checkpoint.save_checkpoint(step)
        train(model, optimizer, 1)
        checkpoint.wait("committed")
        assert checkpoint.load_checkpoint() == 10
        return all(map(torch.equal, before, model.parameters()))


def save_for_others(rank, world, config):
    """Saves each rank's rows of a tensor on the device, larger than what is read at a time, and a few numbers of its
    own."""
    rows = torch.arange(LARGE, device="cuda", dtype=torch.float32).view(world, -1)[rank]
    with attach(_rows(rank, world, rows, torch.full((3,), float(rank), device="cuda")), world=join_world(),
                config=config) as checkpoint:
        checkpoint.save_checkpoint(7, to_storage=True)
        checkpoint.wait("drained")


def load_of_others(rank, world, config, reshard):
    """Returns [the reader, whether the result is right], with or without a rule for the rank's own values."""
    mine, own = torch.zeros(LARGE // world, device="cuda"), torch.zeros(3, device="cuda")
    contents, joined = _rows(rank, world, mine, own, reshard), join_world()
    with attach(contents, world=joined, config=config) as checkpoint:
        step = load_any_layout(checkpoint, contents, joined, config=config)
        wanted = torch.arange(LARGE, device="cuda", dtype=torch.float32).view(world, -1)[rank]
        right = step == 7 and torch.equal(mine, wanted) and own.tolist() == [float(rank)] * 3
        return ["adapter" if checkpoint.restored is None else "library", right]


def _rows(rank, world, mine, own, reshard="refuse"):
    records_of_rank = [Record("rows", lambda: mine, (LARGE,), (LARGE // world * rank,), None, False),
                       replace(whole(f"rank{rank}/own", lambda: own, None, eager=True), reshard=reshard)]
    return Contents(records_of_rank, [])


def saves_in_a_capture(rank, world, config):
    """Returns whether a save during a capture is refused and the graph is valid afterwards."""
    model, held = model_of(0), torch.zeros(1, device="cuda")
    with tierckpt.init(model=model, config=config) as checkpoint:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            held.add_(1)
            with pytest.raises(tierckpt.InvalidArgumentError, match="captured"):
                checkpoint.save_checkpoint(1)
        graph.replay()
        return held.item() == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_device_gets_back_what_lay_on_it_at_the_save(tmp_path, device, site, stream):
    assert run(tmp_path, "test_cuda:saves_every_step", world=1, config=site.config, stream=stream) == [True]


@pytest.mark.parametrize("reshard, reader", [("any", "library"), ("refuse", "adapter")])
def test_what_two_ranks_have_saved_is_read_onto_the_device_of_one(tmp_path, device, site, reshard, reader):
    site.config["memory_cap_bytes"] = "2GiB"
    run(tmp_path, "test_cuda:save_for_others", world=2, config=site.config)
    ranks = run(tmp_path, "test_cuda:load_of_others", world=1, config=site.config, reshard=reshard)
    assert ranks == [[reader, True]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex128])
def test_a_published_tensor_is_read_onto_a_device_in_bounded_pieces(device, site, monkeypatch, dtype):
    model = torch.nn.Module()
    model.register_buffer("wide", torch.randn(700, 333).to(dtype))
    with tierckpt.init(model=model, config=site.config) as checkpoint:
        checkpoint.save_checkpoint(1, to_storage=True)
        checkpoint.wait("drained")
    memory, sizes = pieces._host_memory, []
    monkeypatch.setattr(pieces, "PIECE_BYTES", 10000)
    monkeypatch.setattr(pieces, "_host_memory", lambda *asked: sizes.append(asked) or memory(*asked))
    with tierckpt.open_published(site.config) as version:
        for out in (torch.zeros(700, 333, dtype=dtype, device="cuda"),
                    torch.zeros(333, 700, dtype=dtype, device="cuda").t()):
            shape = version.shape("wide")
            version.read_box("wide", (0,) * len(shape), shape, out=out)
            assert torch.equal(out.cpu(), model.wide)
    assert len(sizes) == 2 and all(size <= 10000 and pinned for size, pinned in sizes)


def test_a_save_in_a_graph_capture_is_refused_and_leaves_the_graph_good(tmp_path, device, site):
    assert run(tmp_path, "test_cuda:saves_in_a_capture", world=1, config=site.config) == [True]


def test_a_tensor_that_goes_to_another_device_is_refused(device):
    holder = SimpleNamespace(tensor=torch.ones(3, device="cuda"))
    table, client = RecordTable([whole("w", lambda: holder.tensor, None, eager=False)]), Streams()
    table.add_to(client)
    holder.tensor = torch.ones(3)
    with pytest.raises(LayoutError, match="is now on cpu"):
        table.refresh(client)
