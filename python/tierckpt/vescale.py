# SPDX-License-Identifier: Apache-2.0
"""save and load with the arguments of veScale: docs/frameworks/vescale-lines.md."""

from .adapters.vescale import load, save

__all__ = ["load", "save"]
