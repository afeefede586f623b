# SPDX-License-Identifier: Apache-2.0
"""A model compiled by torch.compile (inductor)."""
# steps: 20

import time

import torch

import tierckpt  # <- tierckpt

torch.manual_seed(0)
data = torch.randn(256, 16)
model = torch.compile(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.GELU(),
                                          torch.nn.Linear(32, 16)))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

step = 0
ckpt = tierckpt.init(model=model, optimizer=optimizer, config="tierckpt.json")  # <- tierckpt
step = ckpt.load_checkpoint() or 0  # <- tierckpt
while step < 20:
    batch = data[torch.randint(0, 256, (16,))]
    loss = torch.nn.functional.mse_loss(model(batch), batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
    print(f"step {step} loss {loss.item()!r}", flush=True)
    time.sleep(0.02)  # as if the model were larger

ckpt.save_last(step)  # <- tierckpt
ckpt.close()  # <- tierckpt
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "final.pt")
