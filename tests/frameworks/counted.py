# SPDX-License-Identifier: Apache-2.0
"""A module with a value beside its tensors that every step depends on: get_extra_state() has it."""

import torch


class Counted:
    """Before the class of a module: counts its passes in training, and scales what comes out by their number."""

    passes = 0

    def forward(self, *inputs, **named):
        self.passes += self.training
        return super().forward(*inputs, **named) * (1 + self.passes % 7 / 64)

    def get_extra_state(self):
        return torch.tensor(self.passes)

    def set_extra_state(self, state):
        self.passes = int(state)


def count(module):
    """Makes a module a counted one."""
    module.__class__ = type(f"Counted{type(module).__name__}", (Counted, type(module)), {})
    return module
