# SPDX-License-Identifier: Apache-2.0
"""As tierckpt.sagemaker."""

from tierckpt.sagemaker import SMStateDictType, init_optim_state, sm_state_dict_type

__all__ = ["SMStateDictType", "init_optim_state", "sm_state_dict_type"]
