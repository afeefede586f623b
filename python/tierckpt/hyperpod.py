# SPDX-License-Identifier: Apache-2.0
"""The adapter for programs of HyperPod's managed tiered checkpointing: docs/frameworks/hyperpod-lines.md."""

from .adapters.hyperpod import SageMakerCheckpointConfig, SageMakerTieredStorageReader, SageMakerTieredStorageWriter
from .errors import ConfigError as SageMakerTieredStorageConfigError
from .errors import Error as SageMakerTieredStorageError

__all__ = ["SageMakerCheckpointConfig", "SageMakerTieredStorageConfigError", "SageMakerTieredStorageError",
           "SageMakerTieredStorageReader", "SageMakerTieredStorageWriter"]
