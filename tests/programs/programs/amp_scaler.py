# SPDX-License-Identifier: Apache-2.0
"""A plain loop in mixed precision (fp16) with a GradScaler, which skips steps."""
# steps: 24
# quick: yes

import time

import torch

import tierckpt  # <- tierckpt

torch.manual_seed(0)
inputs, targets = torch.randn(256, 16), torch.randn(256, 4)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(32, 4))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 24)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=3)

step, skipped = 0, 0
ckpt = tierckpt.init(model=model, optimizer=optimizer, scheduler=scheduler, extra_state=scaler, config="tierckpt.json")  # <- tierckpt
step = ckpt.load_checkpoint() or 0  # <- tierckpt
while step < 24:
    rows = torch.arange(step * 16, step * 16 + 16) % 256
    with torch.autocast("cpu", dtype=torch.float16):
        loss = torch.nn.functional.mse_loss(model(inputs[rows]).float(), targets[rows])
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scale = scaler.get_scale()
    scaler.step(optimizer)
    scaler.update()
    skipped += scaler.get_scale() < scale
    scheduler.step()
    step += 1
    ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
    print(f"step {step} loss {loss.item()!r}", flush=True)
    time.sleep(0.02)  # as if the model were larger

ckpt.save_last(step)  # <- tierckpt
ckpt.close()  # <- tierckpt
print(f"{skipped} steps were skipped")
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "scaler": scaler.state_dict(),
            "scheduler": scheduler.state_dict(), "random": torch.rand(1)}, "final.pt")
