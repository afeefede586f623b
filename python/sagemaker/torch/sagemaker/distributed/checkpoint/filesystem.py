# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.sagemaker."""

from tierckpt.sagemaker import DistributedFileSystemReader, DistributedFileSystemWriter

__all__ = ["DistributedFileSystemReader", "DistributedFileSystemWriter"]
