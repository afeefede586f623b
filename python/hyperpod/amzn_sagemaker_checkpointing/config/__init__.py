# SPDX-License-Identifier: Apache-2.0
"""As amzn_sagemaker_checkpointing."""
