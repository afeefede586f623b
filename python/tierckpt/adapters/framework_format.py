# SPDX-License-Identifier: Apache-2.0
"""`storage_format` framework, for adapters that write their framework's own checkpoints."""

from dataclasses import replace

from ..runtime.settings import FRAMEWORK, ConfigSource, Overrides, storage_format
from ..state.contents import Contents


def is_framework(config: ConfigSource, overrides: Overrides = None) -> bool:
    return storage_format(config, overrides) == FRAMEWORK


def for_framework(contents: Contents, config: ConfigSource, overrides: Overrides = None) -> Contents:
    """These contents, for attach. If the configuration says framework, saves of them end in memory, and the adapter
    writes what goes to storage."""
    return replace(contents, storage_format=FRAMEWORK) if is_framework(config, overrides) else contents
