# SPDX-License-Identifier: Apache-2.0
"""The adapter for Lightning: docs/frameworks/lightning.md."""

from .adapters.lightning import TierCheckpoint, TierCheckpointIO

__all__ = ["TierCheckpoint", "TierCheckpointIO"]
