# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.hyperpod."""

from tierckpt.hyperpod import SageMakerTieredStorageReader

__all__ = ["SageMakerTieredStorageReader"]
