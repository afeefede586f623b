# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.hyperpod."""

from tierckpt.hyperpod import SageMakerTieredStorageWriter

__all__ = ["SageMakerTieredStorageWriter"]
