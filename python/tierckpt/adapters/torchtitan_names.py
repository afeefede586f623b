# SPDX-License-Identifier: Apache-2.0
"""The name of tierckpt.torchtitan that needs torchtitan itself."""

from typing import Any


def of_torchtitan(name: str) -> Any:
    """TierckptManager is derived from a class of torchtitan 0.3, which CheckpointManager does not need. Raises
    ModuleNotFoundError without torchtitan."""
    if name == "TierckptManager":
        from .torchtitan import TierckptManager

        return TierckptManager
    raise AttributeError(f"module 'tierckpt.torchtitan' has no attribute {name!r}")
