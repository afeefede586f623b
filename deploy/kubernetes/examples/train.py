# SPDX-License-Identifier: Apache-2.0
"""A training for the examples: torchrun starts it in each pod. Four calls of tierckpt make it resume."""

import logging
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import tierckpt

STEPS = int(os.environ.get("STEPS", "100000"))


def main() -> None:
    logging.basicConfig(level=logging.INFO)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if torch.cuda.is_available() else torch.device("cpu")
    torch.manual_seed(1)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512)).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    with tierckpt.init(model=model, optimizer=optimizer, config=os.environ["TIERCKPT_CONFIG"]) as ckpt:
        step = ckpt.load_checkpoint() or 0
        logging.info("rank %d begins after step %d", dist.get_rank(), step)
        while step < STEPS:
            seed = step * dist.get_world_size() + dist.get_rank()
            x = torch.randn(64, 512, generator=torch.Generator().manual_seed(seed)).to(device)
            loss = (model(x) - x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            ckpt.save_checkpoint_if_needed(step)
            if step % 100 == 0 and dist.get_rank() == 0:
                logging.info("step %d: loss %.4f", step, loss.item())
        ckpt.save_last(step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
