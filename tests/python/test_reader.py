# SPDX-License-Identifier: Apache-2.0
"""open_published: saved tensors are read whole and in any box, and damage is an error."""

import json
import os
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import HuggingFaceStorageReader

import tierckpt
from harness import run
from place import TOP

KINDS = [("plain", 1), ("ddp", 2), ("fsdp", 2), ("hsdp", 4)]


def publish(tmp_path, site, kind="fsdp", world=2):
    """Returns the published state dict."""
    reference = tmp_path / "reference.pt"
    run(tmp_path, "test_published:publish", world=world, kind=kind, config=site.config, reference=str(reference))
    return torch.load(reference)


@pytest.mark.parametrize("kind, world", KINDS)
def test_every_tensor_is_read_whole(tmp_path, site, kind, world):
    state = publish(tmp_path, site, kind, world)
    with tierckpt.open_published(site.config) as version:
        assert version.step == 2 and version.info.world_size == world
        assert state.keys() <= set(version.keys)
        for key, tensor in state.items():
            assert version.shape(key) == tuple(tensor.shape) and version.dtype(key) == tensor.dtype
            assert torch.equal(version.read(key), tensor), key


def test_any_box_is_read_into_a_tensor_of_ones_own(tmp_path, site):
    weight = publish(tmp_path, site)["0.weight"]
    with tierckpt.open_published(site.config, step=2) as version:
        for row in range(5):
            out = torch.full((5 - row, 3), 9.0)
            assert version.read_box("0.weight", (row, 2), (5 - row, 3), out=out) is out
            assert torch.equal(out, weight[row:, 2:5])
        assert version.read_box("0.weight", (1, 1), (0, 2)).shape == (0, 2)


def test_wrong_boxes_are_refused(tmp_path, site):
    publish(tmp_path, site)
    with tierckpt.open_published(site.config) as version:
        for offset, shape, out in [((0,), (1,), None), ((3, 0), (4, 1), None), ((0, 0), (2, 2), torch.zeros(2, 1)),
                                   ((0, 0), (2, 2), torch.zeros(2, 2, dtype=torch.float64)),
                                   ((0, 0), (2, 2), torch.zeros(2, 2, device="meta"))]:
            with pytest.raises(tierckpt.InvalidArgumentError):
                version.read_box("0.weight", offset, shape, out=out)
        with pytest.raises(tierckpt.NotFoundError):
            version.read("nothing")


def test_each_ranks_own_is_there_too(tmp_path, site):
    publish(tmp_path, site)
    with tierckpt.open_published(site.config) as version:
        assert {entry.rank for entry in version.entries if "rng.torch" in entry.key} == {0, 1}
        for rank in range(2):
            saved = json.loads(version.blob(f"rank{rank}/tierckpt.optimizer"))
            assert saved["inner"][0]["lr"] == 0.1
        with pytest.raises(tierckpt.NotFoundError):
            version.blob("rank0/tierckpt.optimizer", rank=1)
        index = next(i for i, entry in enumerate(version.entries) if entry.key == "rank1/rng.torch")
        assert torch.equal(version.read_entry(index), version.read("rank1/rng.torch"))


def test_it_is_opened_by_its_directory(tmp_path, site):
    state = publish(tmp_path, site, "plain", 1)
    directory, = (site.dir / "save" / "test").glob("v*")
    copied = directory.rename(tmp_path / "copied")
    with tierckpt.open_published(copied) as version:
        assert torch.equal(version.read("3.weight"), state["3.weight"])
    with pytest.raises(tierckpt.InvalidArgumentError):
        version.read("3.weight")
    with pytest.raises(tierckpt.NotFoundError):
        tierckpt.open_published(site.config)


def test_a_missing_file_is_an_error(tmp_path, site):
    publish(tmp_path, site)
    file = next((site.dir / "save" / "test").glob("v*/shard-*.safetensors"))
    file.unlink()
    with pytest.raises(tierckpt.Error, match=file.name):
        tierckpt.open_published(site.config)


def test_a_version_that_is_passed_over_is_warned_about(tmp_path, site):
    publish(tmp_path, site)
    directory, = (site.dir / "save" / "test").glob("v*")
    directory.with_name("v000000000009.t9").mkdir()
    with pytest.warns(UserWarning, match="v000000000009.t9"):
        with tierckpt.open_published(site.config) as version:
            assert version.step == 2


def test_a_damaged_chunk_is_an_error(tmp_path, site):
    publish(tmp_path, site, "plain", 1)
    file = next((site.dir / "save" / "test").glob("v*/shard-*.safetensors"))
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with tierckpt.open_published(site.config) as version:
        with pytest.raises(tierckpt.CorruptError, match=f"{file.name}: chunk 0"):
            version.read(version.keys[0])


@pytest.mark.parametrize("harm", [lambda index: index.write_bytes(b"?" + index.read_bytes()[1:]),
                                  lambda index: index.unlink()], ids=["damaged", "missing"])
def test_without_an_index_that_is_whole_the_header_of_each_file_counts(tmp_path, site, harm):
    state = publish(tmp_path, site)
    index, = (site.dir / "save" / "test").glob("v*/.index")
    harm(index)
    with tierckpt.open_published(site.config) as version:
        for key, tensor in state.items():
            assert torch.equal(version.read(key), tensor), key


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 3)
        self.lm_head = torch.nn.Linear(3, 5, bias=False)
        self.lm_head.weight = self.embed.weight


def recipe(name):
    """Returns the Python code of the page's block that contains this name."""
    blocks = (TOP / "docs/published.md").read_text().split("```python\n")[1:]
    return next(block.split("```")[0] for block in blocks if name in block)


def test_tied_weights_are_loaded_by_stock_pytorch_as_the_page_says(site):
    model = Tied()
    saved = model.embed.weight.detach().clone()
    with tierckpt.init(model=model, config=site.config) as checkpoint:
        checkpoint.save_checkpoint(1, to_storage=True)
        checkpoint.wait("drained")
    (version,) = Path(site.config["save_dir"], site.config["job"]).glob("v0*")
    fresh = Tied()
    reader = HuggingFaceStorageReader(str(version))
    with pytest.raises(dcp.CheckpointException, match="lm_head.weight"):
        dcp.load(fresh.state_dict(), storage_reader=reader, no_dist=True)
    code = recipe("once = {").replace("v000000000120.t3", str(version))
    exec(code, {"model": fresh, "dcp": dcp, "HuggingFaceStorageReader": HuggingFaceStorageReader})
    assert torch.equal(fresh.embed.weight, saved) and torch.equal(fresh.lm_head.weight, saved)


@pytest.mark.parametrize("reads", [tierckpt.open_published,
                                   lambda path: tierckpt.load(torch.nn.Linear(1, 1), config=path)])
def test_a_directory_on_storage_that_hangs_is_an_error_that_names_it(tmp_path, monkeypatch, reads):
    answers = threading.Event()
    monkeypatch.setattr("tierckpt.core.published._LIMIT_S", 0.05)
    monkeypatch.setattr(os.path, "isdir", lambda path: answers.wait())
    try:
        with pytest.raises(tierckpt.errors.TimedOutError, match=f"{tmp_path}: storage hangs"):
            reads(str(tmp_path))
    finally:
        answers.set()
