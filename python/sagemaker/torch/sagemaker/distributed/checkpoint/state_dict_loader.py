# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.sagemaker."""

from tierckpt.sagemaker import load

__all__ = ["load"]
