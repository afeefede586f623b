# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM and megatron-core."""
