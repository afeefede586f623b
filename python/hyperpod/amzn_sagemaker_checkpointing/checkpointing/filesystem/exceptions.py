# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.hyperpod."""

from tierckpt.hyperpod import SageMakerTieredStorageConfigError, SageMakerTieredStorageError

__all__ = ["SageMakerTieredStorageConfigError", "SageMakerTieredStorageError"]
