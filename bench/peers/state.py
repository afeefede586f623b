# SPDX-License-Identifier: Apache-2.0
"""The state that every way saves, and the plain copy of its bytes that each is compared with."""

import ctypes
import time

import torch

TENSORS = 400


class State:
    """400 tensors of one size, touched, and kept buffers of the same shapes; of tensors on a GPU these are pinned."""

    def __init__(self, total_bytes: int, device: str):
        elements = total_bytes // TENSORS // 4
        self.cuda = device == "cuda"
        self.tensors = {f"layer{i}.weight": torch.full((elements,), float(i), device=device) for i in range(TENSORS)}
        self.kept = [torch.zeros(elements, pin_memory=self.cuda) for _ in range(TENSORS)]
        self.bytes = TENSORS * elements * 4

    def train(self, step: int):
        """What an optimizer step would do: the next save must not be able to skip anything."""
        for tensor in list(self.tensors.values())[:4]:
            tensor.fill_(step)

    def settle(self):
        """Waits for what the GPU has still to do."""
        if self.cuda:
            torch.cuda.synchronize()

    def copy_seconds(self) -> float:
        """The faster one of torch's copy_ and memmove, tensor by tensor into warm memory."""
        self.settle()
        return _timed(self._torch_copy) if self.cuda else min(_timed(self._torch_copy), _timed(self._memmove))

    def _torch_copy(self):
        for to, tensor in zip(self.kept, self.tensors.values()):
            to.copy_(tensor, non_blocking=True)
        self.settle()

    def _memmove(self):
        for to, tensor in zip(self.kept, self.tensors.values()):
            ctypes.memmove(to.data_ptr(), tensor.data_ptr(), tensor.nbytes)


def _timed(function) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin
