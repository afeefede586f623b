# SPDX-License-Identifier: Apache-2.0
"""The adapter for Hugging Face's Trainer: docs/frameworks/transformers.md."""

from .adapters.transformers import TrainerWrapper

__all__ = ["TrainerWrapper"]
