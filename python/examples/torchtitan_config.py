# SPDX-License-Identifier: Apache-2.0
"""A torchtitan configuration with checkpoints in memory. The lines to add are marked.

    torchrun --nproc-per-node 8 -m torchtitan.train --module torchtitan_config --config llama3_debugmodel_tierckpt

from a directory in which Python finds this file. Kill the training and start it again: it continues where it stopped.
"""

from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.trainer import Trainer

from tierckpt.torchtitan import TierckptManager  # <- added


def llama3_debugmodel_tierckpt() -> Trainer.Config:
    config = llama3_debugmodel()
    config.checkpoint = TierckptManager.Config(enable=True, interval=500, save_mem_interval=5)  # <- added
    return config
