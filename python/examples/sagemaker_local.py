# SPDX-License-Identifier: Apache-2.0
"""Local state dicts with the functions of SageMaker's model parallel library. The lines to change are marked.

    torchrun --nproc-per-node 2 sagemaker_local.py CONFIG.json [STEPS]

Each rank has its own model here. Kill it and start it again: it continues where it stopped.
"""

import os
import sys

import torch
import torch.distributed as dist

import tierckpt.sagemaker
from tierckpt.sagemaker import async_save, load, maybe_finalize_async_calls  # <- was: torch.sagemaker.distributed...


def main(config, steps=100):
    dist.init_process_group("gloo")
    tierckpt.sagemaker.configure(config=config)  # <- may be left out
    mine = os.path.join("checkpoints", f"tp0_ep0_fsdp{dist.get_rank()}")
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    state = {"model": model.state_dict(), "step": 0}
    if tierckpt.sagemaker.newest(state, checkpoint_id=mine) is not None:
        load(state, checkpoint_id=mine)
        model.load_state_dict(state["model"])
    first = state["step"]
    for step in range(first + 1, steps + 1):
        model(torch.randn(8, 64)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 0:
            maybe_finalize_async_calls(blocking=True)
            async_save({"model": model.state_dict(), "step": step}, checkpoint_id=mine)
    maybe_finalize_async_calls(blocking=True)
    tierckpt.sagemaker.close()  # <- may be left out
    print(f"trained from step {first} to {steps}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
