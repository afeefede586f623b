# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.sagemaker."""

from tierckpt.sagemaker import get_global_ranks

__all__ = ["get_global_ranks"]
