# SPDX-License-Identifier: Apache-2.0
"""Objects copied into memory that another process reads."""

import pytest
import torch

from tierckpt import errors
from tierckpt.adapters.shared_copy import SharedMemory, hollow, read_copy


@pytest.fixture
def memory():
    shared = SharedMemory()
    yield shared
    shared.close()


def copied(memory, value):
    return read_copy(memory.descriptor, memory.copy(value))


@pytest.mark.parametrize("tensor", [
    torch.arange(12.0).reshape(3, 4), torch.arange(12.0).reshape(3, 4)[::2, 1:3], torch.tensor(3), torch.zeros(0, 4),
    torch.ones(5, dtype=torch.bfloat16), torch.tensor([True, False]), torch.zeros(1).expand(7),
    torch.nn.Parameter(torch.ones(2))])
def test_tensor_is_the_same(memory, tensor):
    result = copied(memory, {"key": [tensor, "text"]})
    assert result["key"][1] == "text" and result["key"][0].dtype == tensor.dtype
    assert torch.equal(result["key"][0], tensor)


def test_copy_does_not_change_with_the_original(memory):
    tensor = torch.zeros(1000)
    place = memory.copy(tensor)
    tensor.fill_(1)
    assert read_copy(memory.descriptor, place).sum() == 0


def test_larger_copy_takes_the_place_of_a_smaller_one(memory):
    for size in (10, 100_000, 1000):
        first, second = copied(memory, (torch.full((size,), 2.0), torch.arange(size)))
        assert torch.equal(first, torch.full((size,), 2.0)) and torch.equal(second, torch.arange(size))


def test_each_tensor_has_a_storage_of_its_own(memory):
    """torch.save writes whole storages."""
    for tensor in copied(memory, [torch.zeros(3), torch.zeros(100)[:50]]):
        assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()


def test_hollow_tensor_has_a_shape_and_takes_no_room(memory):
    place = memory.copy(hollow(torch.zeros(1 << 40, dtype=torch.uint8, device="meta")))
    assert place.offset == 0 and read_copy(memory.descriptor, place).shape == (1 << 40,)


def test_memory_that_there_is_not_is_an_error(memory, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    with pytest.raises(errors.IoError, match="of memory for a copy of the state: No space left on device"):
        memory.copy(torch.zeros(10))
