# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.megatron."""

from tierckpt.megatron import initialize_easyckpt, load_checkpoint, save_checkpoint_if_needed

__all__ = ["initialize_easyckpt", "load_checkpoint", "save_checkpoint_if_needed"]
