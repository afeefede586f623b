# SPDX-License-Identifier: Apache-2.0
"""The adapter for torch.distributed.checkpoint: docs/frameworks/dcp-lines.md for save and load with the arguments that
they have there, docs/frameworks/dcp.md for writers and readers."""

from .adapters.dcp import StorageReader, StorageWriter, Tiers, attach, step_of
from .adapters.dcp_functions import AsyncSave, async_save, close, configure, load, save
from .adapters.dcp_functions import of_torch as __getattr__  # noqa: F401

__all__ = ["AsyncSave", "StorageReader", "StorageWriter", "Tiers", "async_save", "attach", "close",
           "configure", "load", "save", "step_of"]
