# SPDX-License-Identifier: Apache-2.0
"""A plain loop in bf16 autocast with gradient accumulation."""
# steps: 24
# quick: yes

import time

import torch

import tierckpt  # <- tierckpt

torch.manual_seed(0)
inputs, targets = torch.randn(512, 16), torch.randint(0, 4, (512,))
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=24)

step = 0
ckpt = tierckpt.init(model=model, optimizer=optimizer, scheduler=scheduler, config="tierckpt.json")  # <- tierckpt
step = ckpt.load_checkpoint() or 0  # <- tierckpt
while step < 24:
    total = 0.0
    for part in range(2):
        rows = torch.arange(16) + (2 * step + part) * 16 % 512
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(inputs[rows]), targets[rows]) / 2
        loss.backward()
        total += loss.item()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    step += 1
    ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
    print(f"step {step} loss {total!r}", flush=True)
    time.sleep(0.02)  # as if the model were larger

ckpt.save_last(step)  # <- tierckpt
ckpt.close()  # <- tierckpt
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.rand(1)}, "final.pt")
