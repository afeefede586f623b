# SPDX-License-Identifier: Apache-2.0
"""Help for torch itself."""

from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel

from .. import errors
from ..state.rng import Rng


def settle_ddp(ddp_model: DistributedDataParallel, forward_backward: Callable[[], object]) -> None:
    """Makes a training under DistributedDataParallel resume with equal bits.

    DDP puts its gradient buckets into another order after the first backward pass, and the order of gloo's sums
    depends on it. A resumed process would do its first step with the first order where the uninterrupted one had long
    gone to the second. So each start, the fresh one too, does one pass for nothing: call this after wrapping the
    model and before load_checkpoint, with a function that runs a forward and a backward pass on any batch of the
    usual shape. Collective. Parameters, buffers and generators are as before afterwards, gradients are None.

    Not needed with find_unused_parameters=True, which never reorders, or with fully_shard.
    """
    if not isinstance(ddp_model, DistributedDataParallel):
        raise errors.InvalidArgumentError(
            f"settle_ddp needs a DistributedDataParallel, not a {type(ddp_model).__name__}")
    rng = Rng().blob(None)
    generators = rng.capture()
    buffers = [(buffer, buffer.clone()) for buffer in ddp_model.module.buffers()]
    forward_backward()
    ddp_model.reducer._rebuild_buckets()
    ddp_model.zero_grad(set_to_none=True)
    with torch.no_grad():
        for buffer, before in buffers:
            buffer.copy_(before)
    rng.apply(generators)
