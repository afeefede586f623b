# SPDX-License-Identifier: Apache-2.0
"""The adapter for torchtitan: docs/frameworks/torchtitan.md for TierckptManager, docs/frameworks/torchtitan-lines.md
for programs that build a CheckpointManager with a job_config."""

from typing import TYPE_CHECKING, Any

from .adapters.stateful import ModelWrapper, OptimizerWrapper
from .adapters.torchtitan_lines import CheckpointManager, TrainState

if TYPE_CHECKING:
    from .adapters.torchtitan import TierckptManager

__all__ = ["CheckpointManager", "ModelWrapper", "OptimizerWrapper", "TierckptManager", "TrainState"]


def __getattr__(name: str) -> Any:
    """TierckptManager is derived from a class of torchtitan 0.3, which CheckpointManager does not need."""
    if name == "TierckptManager":
        from .adapters.torchtitan import TierckptManager

        return TierckptManager
    raise AttributeError(f"module 'tierckpt.torchtitan' has no attribute {name!r}")
