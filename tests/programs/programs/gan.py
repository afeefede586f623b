# SPDX-License-Identifier: Apache-2.0
"""A GAN: two models, each with an optimizer of its own, which step one after the other."""
# steps: 24
# quick: yes

import time

import torch

import tierckpt  # <- tierckpt

torch.manual_seed(0)
real = torch.randn(256, 8) * 0.5 + 1
generator = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
critic = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.LeakyReLU(0.2), torch.nn.Dropout(0.2), torch.nn.Linear(32, 1))
opt_g = torch.optim.Adam(generator.parameters(), lr=1e-3, betas=(0.5, 0.999))
opt_c = torch.optim.RMSprop(critic.parameters(), lr=1e-3)
bce = torch.nn.functional.binary_cross_entropy_with_logits

step = 0
ckpt = tierckpt.init(model={"generator": generator, "critic": critic}, optimizer=[opt_g, opt_c], config="tierckpt.json")  # <- tierckpt
step = ckpt.load_checkpoint() or 0  # <- tierckpt
while step < 24:
    batch = real[torch.randint(0, 256, (32,))]
    fake = generator(torch.randn(32, 4))
    loss_c = bce(critic(batch), torch.ones(32, 1)) + bce(critic(fake.detach()), torch.zeros(32, 1))
    opt_c.zero_grad()
    loss_c.backward()
    opt_c.step()
    loss_g = bce(critic(fake), torch.ones(32, 1))
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    step += 1
    ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
    print(f"step {step} loss {loss_c.item() + loss_g.item()!r}", flush=True)
    time.sleep(0.02)  # as if the models were larger

ckpt.save_last(step)  # <- tierckpt
ckpt.close()  # <- tierckpt
torch.save({"generator": generator.state_dict(), "critic": critic.state_dict(), "opt_g": opt_g.state_dict(),
            "opt_c": opt_c.state_dict()}, "final.pt")
