# SPDX-License-Identifier: Apache-2.0
"""The names of EasyCkpt; what they do is in tierckpt.megatron and tierckpt.transformers."""
