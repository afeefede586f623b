# SPDX-License-Identifier: Apache-2.0
"""The adapter for Megatron-LM and megatron-core: docs/frameworks/megatron.md."""

from ..adapters.megatron.easyckpt import (
    checkpoint,
    finalize_easyckpt,
    initialize_easyckpt,
    load_checkpoint,
    rewind_generators,
    save_checkpoint,
    save_checkpoint_if_needed,
)

__all__ = [
    "checkpoint",
    "finalize_easyckpt",
    "initialize_easyckpt",
    "load_checkpoint",
    "rewind_generators",
    "save_checkpoint",
    "save_checkpoint_if_needed",
]
