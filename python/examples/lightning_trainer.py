# SPDX-License-Identifier: Apache-2.0
"""Lightning's Trainer with checkpoints in memory. The lines to add are marked.

    python lightning_trainer.py OUTPUT_DIR [EPOCHS]

Kill it and start it again: it continues where it stopped. With strategy="ddp" and devices=2 it trains on two ranks.
"""

import sys

import torch
from lightning.pytorch import LightningModule, Trainer

from tierckpt.lightning import TierCheckpoint, TierCheckpointIO  # <- added


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 16))

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self.layers(batch), batch)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main(output_dir, epochs=10):
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(torch.randn(128, 16), batch_size=16, shuffle=True)
    trainer = Trainer(
        default_root_dir=output_dir, max_epochs=epochs, accelerator="cpu", devices=1, logger=False,
        enable_checkpointing=False,
        callbacks=[TierCheckpoint(save_mem_interval=1)],  # <- added
        plugins=[TierCheckpointIO()],  # <- added
    )
    trainer.fit(Model(), loader)
    print(f"trained to step {trainer.global_step}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
