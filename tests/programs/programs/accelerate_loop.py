# SPDX-License-Identifier: Apache-2.0
"""Accelerate's loop: a Transformers model, gradient accumulation, a schedule, save_pretrained at the end."""
# needs: accelerate transformers
# steps: 16

import time

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, get_linear_schedule_with_warmup

import tierckpt  # <- tierckpt

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=16, bos_token_id=0,
                                   eos_token_id=0))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
scheduler = get_linear_schedule_with_warmup(optimizer, 2, 16)
data = torch.randint(0, 64, (64, 12))
loader = torch.utils.data.DataLoader(data, batch_size=4, generator=torch.Generator())
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)

step = 0
ckpt = tierckpt.init(model=model, optimizer=optimizer, scheduler=scheduler, config="tierckpt.json")  # <- tierckpt
step = ckpt.load_checkpoint() or 0  # <- tierckpt
while step < 16:
    part = accelerator.skip_first_batches(loader, step % 8 * 2) if step % 8 else loader
    for batch in part:
        with accelerator.accumulate(model):
            loss = model(input_ids=batch, labels=batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if not accelerator.sync_gradients:
            continue
        step += 1
        ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
        print(f"step {step} loss {loss.item()!r}", flush=True)
        time.sleep(0.02)  # as if the model were larger

ckpt.save_last(step)  # <- tierckpt
ckpt.close()  # <- tierckpt
bare = accelerator.unwrap_model(model)
bare.save_pretrained("saved")
again = AutoModelForCausalLM.from_pretrained("saved")
assert all(torch.equal(a, b) for a, b in zip(bare.state_dict().values(), again.state_dict().values()))
torch.save({"model": bare.state_dict(), "optimizer": optimizer.state_dict(), "random": torch.rand(1)}, "final.pt")
