# SPDX-License-Identifier: Apache-2.0
"""The adapter for DeepSpeed: docs/frameworks/deepspeed.md."""

from .adapters.deepspeed import CheckpointEngine, EngineCheckpoint, NoCheckpoint, attach

__all__ = ["CheckpointEngine", "EngineCheckpoint", "NoCheckpoint", "attach"]
