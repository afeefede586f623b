# SPDX-License-Identifier: Apache-2.0
"""A published version is read into tensors on devices, and into any view, in pieces of bounded size."""

import math
import shutil

import pytest
import torch

import tierckpt
from on_device import Diary, OnDevice
from place import Site
from tierckpt.core import pieces

TENSORS = {
    "floats": torch.arange(37 * 11 * 5, dtype=torch.float32).view(37, 11, 5),
    "halves": torch.randn(64, 33).bfloat16(),
    "flags": torch.rand(1000) > 0.5,
    "pairs": torch.randn(13, 7, dtype=torch.complex128),
    "bytes": torch.randn(40, 3).to(torch.float8_e5m2fnuz) if hasattr(torch, "float8_e5m2fnuz") else torch.zeros(1),
    "number": torch.tensor(7),
    "nothing": torch.zeros(0, 3),
}


class _Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for name, tensor in TENSORS.items():
            self.register_buffer(name, tensor.clone())


@pytest.fixture(scope="module")
def directory():
    """The directory of a version with these tensors."""
    site = Site()
    with tierckpt.init(model=_Model(), config=site.config) as checkpoint:
        checkpoint.save_checkpoint(1, to_storage=True)
        checkpoint.wait("drained")
    site.kill_agents()
    yield next((site.dir / "save").glob("test/v*"))
    shutil.rmtree(site.dir, ignore_errors=True)


@pytest.fixture
def version(directory):
    with tierckpt.open_published(directory) as opened:
        yield opened


def whole(version, name, out):
    shape = version.shape(name)
    return version.read_box(name, (0,) * len(shape), shape, out=out)


def same(found, name):
    """Compares bit for bit, including NaN."""
    return torch.equal(*(tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (found, TENSORS[name])))


@pytest.mark.parametrize("shape", [(), (7,), (3, 4), (5, 1, 3), (2, 3, 4, 5), (0, 4), (4, 0), (1, 1)])
@pytest.mark.parametrize("most", [1, 2, 3, 7, 12, 1000])
def test_boxes_make_up_a_tensor_in_its_order_and_none_is_larger_than_allowed(shape, most):
    whole, seen = torch.arange(math.prod(shape)).view(shape), []
    for offset, size in pieces.boxes(shape, most):
        part = whole
        for dim, (at, length) in enumerate(zip(offset, size, strict=True)):
            part = part.narrow(dim, at, length)
        assert part.numel() <= most and part.is_contiguous()
        seen += part.reshape(-1).tolist()
    assert seen == whole.reshape(-1).tolist()


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_on_a_device_is_read_in_bounded_pieces_through_two_pinned_buffers(monkeypatch, version, name):
    diary, tensor = Diary(monkeypatch, 256), torch.zeros_like(TENSORS[name])
    whole(version, name, OnDevice(tensor))
    assert same(tensor, name) and not OnDevice.pending
    assert all(size <= 256 and pinned for size, pinned in diary.memory())
    assert sum(size for size, _ in diary.memory()) <= 2 * 256
    assert diary.count("copy") >= max(1, math.ceil(tensor.nbytes / 256))


def test_the_next_piece_is_read_while_one_is_copied(monkeypatch, version):
    diary, tensor = Diary(monkeypatch, 1000), torch.zeros(1000, dtype=torch.bool)
    read = version._native.read_box
    monkeypatch.setattr(pieces, "PIECE_BYTES", 250)
    monkeypatch.setattr(version._native, "read_box", lambda **box: (diary.append("read"), read(**box)))
    whole(version, "flags", OnDevice(tensor))
    steps = [entry for entry in diary if isinstance(entry, str)]
    assert steps == ["read", "copy", "read", "copy", "wait", "read", "copy", "wait", "read", "copy", "wait", "wait"]
    assert same(tensor, "flags")


def test_the_buffers_are_used_again_for_the_next_tensor(monkeypatch, version):
    diary, tensor = Diary(monkeypatch, 256), torch.zeros_like(TENSORS["floats"])
    for _ in range(3):
        whole(version, "floats", OnDevice(tensor))
    assert len(diary.memory()) == 2


def test_a_box_and_an_entry_are_read_onto_a_device_too(monkeypatch, version):
    Diary(monkeypatch, 64)
    box = torch.zeros(20, 3, 5)
    version.read_box("floats", (9, 2, 0), (20, 3, 5), out=OnDevice(box))
    assert torch.equal(box, TENSORS["floats"][9:29, 2:5])
    entry, index = torch.zeros_like(TENSORS["floats"]), [entry.key for entry in version.entries].index("floats")
    version.read_entry(index, out=OnDevice(entry))
    assert same(entry, "floats")
    with pytest.raises(tierckpt.InvalidArgumentError, match="floats: out is"):
        version.read_entry(index, out=torch.zeros(3))


def test_what_cannot_be_read_leaves_no_copy_under_way(monkeypatch, version):
    Diary(monkeypatch, 256)
    read, calls = version._native.read_box, []

    def fail_at_third(**box):
        calls.append(box)
        if len(calls) == 3:
            raise tierckpt.CorruptError("chunk 2 is damaged")
        read(**box)

    monkeypatch.setattr(version._native, "read_box", fail_at_third)
    with pytest.raises(tierckpt.CorruptError):
        whole(version, "floats", OnDevice(torch.zeros_like(TENSORS["floats"])))
    assert not OnDevice.pending


@pytest.mark.parametrize("name", ["floats", "halves", "pairs", "bytes"])
def test_a_tensor_that_is_not_contiguous_is_read_in_bounded_pieces(monkeypatch, version, name):
    diary, wanted = Diary(monkeypatch, 256), TENSORS[name]
    spread = torch.zeros((*wanted.shape, 2), dtype=torch.uint8).to(wanted.dtype)[..., 0]
    turned = torch.zeros_like(wanted.transpose(0, 1).contiguous()).transpose(0, 1)
    for out in (spread, turned):
        assert not out.is_contiguous()
        assert whole(version, name, out) is out
        assert same(out, name)
    assert all(size <= 256 and not pinned for size, pinned in diary.memory())


def test_numbers_that_a_view_negates_or_conjugates_are_read_as_they_were_saved(version):
    for out in (torch.zeros(13, 7, dtype=torch.complex128).conj(), torch.zeros(13, 7, dtype=torch.complex128)):
        whole(version, "pairs", out)
        assert torch.equal(out, TENSORS["pairs"])


def test_a_tensor_without_memory_of_its_own_is_refused(version):
    for out in (torch.zeros(37, 11, 5, device="meta"), torch.zeros(37, 11, 5).to_sparse()):
        with pytest.raises(tierckpt.InvalidArgumentError, match="only a dense tensor"):
            whole(version, "floats", out)
