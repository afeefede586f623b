# SPDX-License-Identifier: Apache-2.0
"""What the interpreter does first in the processes that a rank of megatron_lm.py starts."""

import megatron_hold
import megatron_stubs  # noqa: F401

if megatron_hold.holds():
    megatron_hold.install()
