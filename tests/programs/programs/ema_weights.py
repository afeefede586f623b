# SPDX-License-Identifier: Apache-2.0
"""Averaged weights (EMA, torch.optim.swa_utils) beside the trained ones."""
# steps: 24
# quick: yes

import time

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import tierckpt  # <- tierckpt

torch.manual_seed(0)
inputs, targets = torch.randn(256, 16), torch.randn(256, 4)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9), use_buffers=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

step = 0
both = torch.nn.ModuleDict({"model": model, "average": average})  # <- tierckpt
ckpt = tierckpt.init(model=both, optimizer=optimizer, config="tierckpt.json")  # <- tierckpt
step = ckpt.load_checkpoint() or 0  # <- tierckpt
while step < 24:
    rows = torch.randint(0, 256, (16,))
    loss = torch.nn.functional.mse_loss(model(inputs[rows]), targets[rows])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    average.update_parameters(model)
    step += 1
    ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
    print(f"step {step} loss {loss.item()!r}", flush=True)
    time.sleep(0.02)  # as if the model were larger

ckpt.save_last(step)  # <- tierckpt
ckpt.close()  # <- tierckpt
torch.save({"model": model.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict()},
           "final.pt")
