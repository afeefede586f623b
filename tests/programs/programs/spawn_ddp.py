# SPDX-License-Identifier: Apache-2.0
"""DistributedDataParallel with buffers, its two ranks started by torch.multiprocessing.spawn."""
# launch: python {script} launched
# steps: 20
# quick: yes

import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tierckpt  # <- tierckpt


def train(rank, world):
    torch.manual_seed(rank)
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=world)
    data = torch.randn(256, 16, generator=torch.Generator().manual_seed(1))
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Dropout(),
                                torch.nn.Linear(32, 16))
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    step = 0
    ckpt = tierckpt.init(model=model, optimizer=optimizer, config="tierckpt.json")  # <- tierckpt
    step = ckpt.load_checkpoint() or 0  # <- tierckpt
    while step < 20:
        rows = (torch.arange(8) + 8 * (2 * step + rank)) % 256
        loss = torch.nn.functional.mse_loss(model(data[rows]), data[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
        if rank == 0:
            print(f"step {step} loss {loss.item()!r}", flush=True)
        time.sleep(0.02)  # as if the model were larger
    ckpt.save_last(step)  # <- tierckpt
    ckpt.close()  # <- tierckpt
    torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.rand(1)},
               f"final.{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["STORE"] = os.path.abspath(f"store.{os.getpid()}")
    torch.multiprocessing.spawn(train, args=(2,), nprocs=2)
