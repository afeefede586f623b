# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.transformers."""

from tierckpt.transformers import TrainerWrapper

__all__ = ["TrainerWrapper"]
