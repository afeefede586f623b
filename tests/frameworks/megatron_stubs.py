# SPDX-License-Identifier: Apache-2.0
"""Replaces modules that megatron-core imports and a CPU does not have."""

import sys
import types
import typing

# Needs Triton, which requires a GPU; it is only imported, never used.
_kernels = types.ModuleType("megatron.core.transformer.custom_layers.batch_invariant_kernels")
_kernels.enable_batch_invariant_mode = lambda *_, **__: None
_kernels.is_batch_invariant_mode_enabled = lambda: False
sys.modules[_kernels.__name__] = _kernels

if not hasattr(typing, "override"):  # tags from core_v0.18 on take it from there, also under Python 3.11
    typing.override = lambda method: method
