# SPDX-License-Identifier: Apache-2.0
"""The adapter for programs of SageMaker's model parallel library: docs/frameworks/sagemaker-lines.md for its own lines,
docs/frameworks/sagemaker.md for what else there is."""

from .adapters.sagemaker import async_save, close, configure, load, maybe_finalize_async_calls, newest, save
from .adapters.sagemaker_files import DistributedFileSystemReader, DistributedFileSystemWriter
from .adapters.sagemaker_ranks import get_global_ranks, init, state, transform
from .adapters.sagemaker_state_dict import (
    SMStateDictType,
    init_optim_state,
    load_sharded_optimizer_state_dict,
    sm_state_dict_type,
)

__all__ = ["DistributedFileSystemReader", "DistributedFileSystemWriter", "SMStateDictType", "async_save", "close",
           "configure", "get_global_ranks", "init", "init_optim_state", "load", "load_sharded_optimizer_state_dict",
           "maybe_finalize_async_calls", "newest", "save", "sm_state_dict_type", "state", "transform"]
