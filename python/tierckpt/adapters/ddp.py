# SPDX-License-Identifier: Apache-2.0
"""Help for DistributedDataParallel."""

from collections.abc import Callable

import torch
from torch.nn.parallel import DistributedDataParallel

from .. import errors
from ..state.rng import Rng


def settle_ddp(ddp_model: DistributedDataParallel, forward_backward: Callable[[], object]) -> None:
    """Makes a resumed training under DistributedDataParallel bit-identical to an uninterrupted one.

    After the first backward pass DDP reorders its gradient buckets, and the order in which gloo adds depends on that.
    So a resumed process would make its first step in the first order, while the uninterrupted one had changed to the
    second long before. Call this at every start, also at a fresh one, after the model is wrapped and before
    load_checkpoint: it does one forward and backward pass whose result is not used. Collective. Afterwards parameters,
    buffers and random number generators are as before, and gradients are None.

    ddp_model         the wrapped model
    forward_backward  runs a forward and a backward pass on any batch of the usual shape

    Not needed with find_unused_parameters=True, which never reorders, nor with fully_shard. Raises InvalidArgumentError
    for another kind of model."""
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
