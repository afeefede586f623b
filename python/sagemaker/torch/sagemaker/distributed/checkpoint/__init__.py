# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.sagemaker."""
