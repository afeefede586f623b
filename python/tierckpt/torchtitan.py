# SPDX-License-Identifier: Apache-2.0
"""The adapter for torchtitan: docs/frameworks/torchtitan.md for TierckptManager, docs/frameworks/torchtitan-lines.md
for programs that build a CheckpointManager with a job_config."""

from typing import TYPE_CHECKING

from .adapters.stateful import ModelWrapper, OptimizerWrapper
from .adapters.torchtitan_lines import CheckpointManager, TrainState
from .adapters.torchtitan_names import of_torchtitan as __getattr__  # noqa: F401

if TYPE_CHECKING:
    from .adapters.torchtitan import TierckptManager

__all__ = ["CheckpointManager", "ModelWrapper", "OptimizerWrapper", "TierckptManager", "TrainState"]
