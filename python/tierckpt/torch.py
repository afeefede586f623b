# SPDX-License-Identifier: Apache-2.0
"""Help for PyTorch programs: docs/pytorch.md."""

from .adapters.ddp import settle_ddp

__all__ = ["settle_ddp"]
