# SPDX-License-Identifier: Apache-2.0
"""The adapter for programs of SageMaker's model parallel library: docs/frameworks/sagemaker.md."""

from .adapters.sagemaker import async_save, close, configure, load, maybe_finalize_async_calls, newest, save

__all__ = ["async_save", "close", "configure", "load", "maybe_finalize_async_calls", "newest", "save"]
