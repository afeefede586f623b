# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.sagemaker."""

from tierckpt.sagemaker import async_save, maybe_finalize_async_calls, save

__all__ = ["async_save", "maybe_finalize_async_calls", "save"]
