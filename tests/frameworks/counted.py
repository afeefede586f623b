# SPDX-License-Identifier: Apache-2.0
"""A module with a value that is not a tensor and that every step depends on; get_extra_state() returns it."""

import torch


class Counted:
    """A mixin: counts the forward passes in training, and scales the output by their number."""

    passes = 0

    def forward(self, *inputs, **named):
        self.passes += self.training
        return super().forward(*inputs, **named) * (1 + self.passes % 7 / 64)

    def get_extra_state(self):
        return torch.tensor(self.passes)

    def set_extra_state(self, state):
        self.passes = int(state)


def count(module):
    """Turns a module into a counted one."""
    module.__class__ = type(f"Counted{type(module).__name__}", (Counted, type(module)), {})
    return module
