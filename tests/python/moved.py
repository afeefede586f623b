# SPDX-License-Identifier: Apache-2.0
"""Lets the tensors of a training on CPUs claim to be on a device while a version of another layout is read into them.

    seen = moved.WhileRead(lambda: moved.of([model], [optimizer]), piece_bytes=256)
    checkpoint.load_checkpoint()
    print(seen.report())

The adapter has attached by then, on the CPU. Its load finds a library that refuses the version, so the adapter reads it
itself. Meanwhile the tensors are stand-ins for those on a device, in the same Python objects, and their memory is that
of the CPU tensors, so views of one another remain so. After the last read they are what they were.
"""

import math

import pytest
import torch
from torch.distributed.tensor import DTensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from on_device import Diary, OnDevice
from tierckpt import errors
from tierckpt.core.checkpoint import Checkpoint

_NO_ADDRESS = 1 << 62  # no process has memory there


class Moved(OnDevice):
    """Computes on its host memory. Its address is one by which nothing can be written. What is copied from the host or
    to it is a piece at most."""

    most = 0  # bytes that may be copied at once
    diary = None  # a non-blocking copy must come from a pinned buffer of this one

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        if function == torch.Tensor.data.__get__:
            return cls(arguments[0].memory)
        if function is torch.Tensor.__getitem__:  # torch would enter the device before it dispatches
            return cls(arguments[0].memory[arguments[1]])
        if function is torch.Tensor.data_ptr:
            return arguments[0].memory.data_ptr() | _NO_ADDRESS
        return super().__torch_function__(function, types, arguments, named)

    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        assert not cls.pending, f"{function} while a copy is under way"
        named = dict(named or {})
        wrappers = {}

        def memory_of(value):
            if isinstance(value, Moved):
                wrappers[id(value.memory)] = value
                return value.memory
            return value

        def wrapped(value):
            if not isinstance(value, torch.Tensor):
                return value
            return wrappers[id(value)] if id(value) in wrappers else cls(value)

        arguments, named = tree_map(memory_of, (arguments, named))
        to = None if named.get("device") is None else torch.device(named["device"])
        if to is not None:
            named["device"] = "cpu"
        found = function(*arguments, **named)
        if to is not None and to.type == "cpu":
            cls._check(found, "to")
            return found
        return tree_map(wrapped, found)

    @classmethod
    def _copy(cls, target, source, non_blocking=False):
        from_device, to_device = isinstance(source, Moved), isinstance(target, Moved)
        if from_device != to_device:
            cls._check(source, "to" if from_device else "from")
        source = source.memory if from_device else source
        if not to_device or not non_blocking:
            cls.make_copies()
            return torch.Tensor.copy_(target.memory if to_device else target, source)
        assert from_device or cls.diary.has_pinned(source), "a non-blocking copy from memory that is not pinned"
        cls.pending.append((target.memory, source))
        return target

    @classmethod
    def _check(cls, tensor, direction):
        size = math.prod(tensor.shape) * tensor.dtype.itemsize
        assert size <= cls.most, f"{size} bytes are copied {direction} the host at once, more than a piece"


class _Factories(TorchFunctionMode):
    """New tensors on a device are stand-ins, too."""

    def __torch_function__(self, function, types, arguments=(), named=None):
        named = dict(named or {})
        if named.get("device") is None or torch.device(named["device"]).type != "cuda" \
                or any(isinstance(argument, Moved) for argument in arguments):
            return function(*arguments, **named)
        return Moved(function(*arguments, **{**named, "device": "cpu"}))


def of(modules, optimizers):
    """Parameters and buffers, and what torch optimizers train and keep."""
    tensors = [tensor for module in modules for tensor in (*module.parameters(), *module.buffers())]
    for optimizer in optimizers:
        tensors += [tensor for group in optimizer.param_groups for tensor in group["params"]]
        tensors += [value for state in optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
    return tensors


def _memory_for(tensor, turned):
    """The memory of a stand-in: that of the tensor, or with `turned` a copy whose elements lie in another order."""
    memory = tensor.detach()
    return memory.transpose(0, -1).contiguous().transpose(0, -1) if turned and memory.dim() > 1 else memory


class _Exchange:
    """A tensor whose Python object is a stand-in until `undo`. Autograd keeps to the tensor."""

    def __init__(self, tensor, turned):
        self._tensor, self._memory = tensor, _memory_for(tensor, turned)
        self._other = Moved(self._memory, tensor.requires_grad)
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        self._other.__dict__ = {**vars(tensor), **vars(self._other), "_is_param": is_parameter}
        self._exchange()

    def _exchange(self):
        one, other = self._tensor, self._other
        one.__class__, other.__class__ = type(other), type(one)
        one.__dict__, other.__dict__ = vars(other), vars(one)
        torch._C._swap_tensor_impl(one, other)

    def undo(self):
        self._exchange()
        with torch.no_grad():
            self._tensor.copy_(self._memory)  # of another one, if it was turned


class _Local:
    """The same for this rank's part of a DTensor."""

    def __init__(self, tensor, turned):
        self._tensor, self._before = tensor, tensor._local_tensor
        self._memory = _memory_for(self._before, turned)
        tensor._local_tensor = Moved(self._memory)

    def undo(self):
        self._tensor._local_tensor = self._before
        with torch.no_grad():
            self._before.copy_(self._memory)


class WhileRead:
    """From the next load of a Checkpoint on, which refuses, until all of a version is read."""

    def __init__(self, tensors, piece_bytes, turned=False, some=False):
        """tensors: returns them. turned: those with several dimensions are not contiguous. some: only every other one
        is on the device."""
        self._tensors, self._turned, self._every = tensors, turned, 2 if some else 1
        self._exchanged, self._copied = [], 0
        self._patch = pytest.MonkeyPatch()
        self._diary = Moved.diary = Diary(self._patch, piece_bytes)
        Moved.most = piece_bytes
        self._filled = Checkpoint.filled_elsewhere
        self._patch.setattr(Checkpoint, "load_checkpoint", lambda checkpoint, step=None: self._refuse())
        self._patch.setattr(Checkpoint, "filled_elsewhere", lambda checkpoint: self._end(checkpoint))

    def _refuse(self):
        chosen = list({id(tensor): tensor for tensor in self._tensors()}.values())[::self._every]
        self._exchanged = [(_Local if isinstance(tensor, DTensor) else _Exchange)(tensor, self._turned)
                           for tensor in chosen]
        self._mode = _Factories()
        self._mode.__enter__()
        raise errors.LayoutError("the library does not read it")

    def _end(self, checkpoint):
        self._mode.__exit__(None, None, None)
        assert not OnDevice.pending, "a copy is under way after the last read"
        for exchanged in reversed(self._exchanged):
            exchanged.undo()
        self._patch.undo()
        self._filled(checkpoint)

    def report(self):
        """How many tensors were on the device, how many copies from pinned buffers there were, and the size of the
        largest buffer."""
        sizes = [size for size, pinned in self._diary.memory() if pinned]
        assert sizes, f"no buffer was pinned: none of {len(self._exchanged)} tensors on the device was read in pieces"
        return {"tensors": len(self._exchanged), "copies": self._diary.count("copy"), "largest": max(sizes)}
