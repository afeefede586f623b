# SPDX-License-Identifier: Apache-2.0
"""torchrun --nproc-per-node 2 training.py nodes|processes OUT: a training by DDP, of which the test kills processes.
With `nodes` each process is on a node of its own, so that copies go over the network. Prints where it begins; the first
rank writes a digest of the last state to the file OUT, which is also the job's name."""

import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tierckpt

STEPS = 60

how, out = sys.argv[1:]
rank = int(os.environ["RANK"])
if how == "nodes":
    os.environ["TIERCKPT_NODE"] = f"n{rank}"
dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.AdamW(model.parameters())
config = {"save_dir": "checkpoints-" + out, "job": out, "save_mem_interval": 2, "net_device": "lo", "linger_s": 60}
ckpt = tierckpt.init(model=model, optimizer=optimizer, config=config)
step = ckpt.load_checkpoint() or 0
print(f"rank {rank}, process {os.getpid()}: from step {step}", flush=True)
while step < STEPS:
    data = torch.randn(8, 64, generator=torch.Generator().manual_seed(2 * step + rank))
    model(data).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    ckpt.save_checkpoint_if_needed(step)
    time.sleep(0.1)
    if rank == 0:
        print(f"step {step}", flush=True)
if rank == 0:
    with open(out, "w") as file:
        file.write(hashlib.sha256(model.module.weight.detach().numpy().tobytes()).hexdigest())
ckpt.save_last(step)
ckpt.close()
