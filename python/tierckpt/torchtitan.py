# SPDX-License-Identifier: Apache-2.0
"""The adapter for torchtitan: docs/frameworks/torchtitan.md."""

from .adapters.torchtitan import TierckptManager

__all__ = ["TierckptManager"]
