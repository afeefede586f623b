# SPDX-License-Identifier: Apache-2.0
"""`import tierckpt.megatron.hook` before pretrain() of Megatron-LM: docs/frameworks/megatron.md."""

from ..adapters.megatron.hook import install

__all__ = ["install"]

install()
