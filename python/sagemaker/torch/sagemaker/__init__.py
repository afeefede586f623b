# SPDX-License-Identifier: Apache-2.0
"""The names of SageMaker's model parallel library that have to do with checkpoints; what they do is in
tierckpt.sagemaker. There is no torch/__init__.py here: these files are installed beside those of torch."""

from tierckpt.sagemaker import init, state, transform

__all__ = ["init", "state", "transform"]
