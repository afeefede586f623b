# SPDX-License-Identifier: Apache-2.0
"""A stand-in for tensors on CUDA devices: for tests on a machine without one."""

import torch

from tierckpt.core import pieces


class OnDevice(torch.Tensor):
    """A tensor that reports to be on a device. Its memory cannot be written through its address, and a non-blocking
    copy is made as late as possible: when the event after it is awaited. A buffer that is reused too early is therefore
    detected."""

    pending = []  # copies that were started but not made yet

    @staticmethod
    def __new__(cls, memory, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls, memory.size(), strides=memory.stride(), storage_offset=memory.storage_offset(), dtype=memory.dtype,
            device="cuda:0", requires_grad=requires_grad)

    def __init__(self, memory, requires_grad=False):
        self.memory = memory

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        if function in (torch.Tensor.detach, torch.Tensor.narrow, torch.Tensor.view):
            target, *rest = arguments
            return cls(function(target.memory, *rest))
        if function is torch.Tensor.copy_:
            return cls._copy(*arguments, **(named or {}))
        if function is torch.Tensor.data_ptr:
            raise AssertionError("the address of device memory was requested")
        return super().__torch_function__(function, types, arguments, named or {})

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        raise NotImplementedError(f"{function} of a tensor on the stand-in's device")

    @classmethod
    def _copy(cls, target, source, non_blocking=False):
        cls.pending.append((target.memory, source))
        if not non_blocking:
            cls.make_copies()
        return target

    @classmethod
    def make_copies(cls):
        while cls.pending:
            target, source = cls.pending.pop(0)
            torch.Tensor.copy_(target, source)


class _Event:
    """An event that completes the copies that were started before it."""

    def __init__(self, diary):
        self._count, self._diary = len(OnDevice.pending), diary

    def synchronize(self):
        self._diary.append("wait")
        OnDevice.make_copies()


class Diary(list):
    """Records the operations on host memory and on the device, in order: ("memory", bytes, pinned), "copy" and
    "wait"."""

    def __init__(self, monkeypatch, piece_bytes):
        super().__init__()
        self.pinned = []
        OnDevice.pending.clear()
        monkeypatch.setattr(pieces, "PIECE_BYTES", piece_bytes)
        monkeypatch.setattr(pieces, "_host_memory", self._memory)
        monkeypatch.setattr(pieces, "_end_of_copies", self._end)

    def _memory(self, size, pinned):
        self.append(("memory", size, pinned))
        buffer = torch.empty(size, dtype=torch.uint8)
        if pinned:
            self.pinned.append(buffer)
        return buffer

    def _end(self, device):
        assert device.type == "cuda"
        self.append("copy")
        return _Event(self)

    def has_pinned(self, tensor):
        """Whether this is a part of one of the pinned buffers."""
        storages = [buffer.untyped_storage().data_ptr() for buffer in self.pinned]
        return tensor.untyped_storage().data_ptr() in storages

    def memory(self):
        return [entry[1:] for entry in self if entry[0] == "memory"]
