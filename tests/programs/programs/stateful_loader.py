# SPDX-License-Identifier: Apache-2.0
"""torchdata's StatefulDataLoader with two workers, killed inside an epoch."""
# needs: torchdata
# steps: 24

import time

import torch
from torchdata.stateful_dataloader import StatefulDataLoader

import tierckpt  # <- tierckpt


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 80

    def __getitem__(self, i):
        return torch.full((16,), i / 80) + torch.rand(16, generator=torch.Generator().manual_seed(i)) * 0.1


def main():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = StatefulDataLoader(Samples(), batch_size=8, shuffle=True, num_workers=2, snapshot_every_n_steps=1)
    step = 0
    ckpt = tierckpt.init(model=model, optimizer=optimizer, extra_state=loader, config="tierckpt.json")  # <- tierckpt
    step = ckpt.load_checkpoint() or 0  # <- tierckpt
    while step < 24:
        for batch in loader:
            loss = torch.nn.functional.mse_loss(model(batch), batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            ckpt.save_checkpoint_if_needed(step)  # <- tierckpt
            print(f"step {step} loss {loss.item()!r}", flush=True)
            time.sleep(0.02)  # as if the model were larger
            if step == 24:
                break
    ckpt.save_last(step)  # <- tierckpt
    ckpt.close()  # <- tierckpt
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "final.pt")


if __name__ == "__main__":
    main()
