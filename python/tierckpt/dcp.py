# SPDX-License-Identifier: Apache-2.0
"""The adapter for torch.distributed.checkpoint: docs/frameworks/dcp.md."""

from .adapters.dcp import StorageReader, StorageWriter, Tiers, attach, step_of

__all__ = ["StorageReader", "StorageWriter", "Tiers", "attach", "step_of"]
