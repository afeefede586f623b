# SPDX-License-Identifier: Apache-2.0
"""Lightning on two ranks (DDP, which it launches itself), with validation, a callback for checkpoints and a plugin."""
# needs: lightning
# launch: python {script} launched
# steps: 18

import time

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint

from tierckpt.lightning import TierCheckpoint, TierCheckpointIO  # <- tierckpt


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.ReLU(),
                                          torch.nn.Dropout(0.1), torch.nn.Linear(32, 16))

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self.layers(batch), batch)
        if self.global_rank == 0:
            print(f"step {self.global_step + 1} loss {loss.item()!r}", flush=True)
        time.sleep(0.02)  # as if the model were larger
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", torch.nn.functional.mse_loss(self.layers(batch), batch), sync_dist=True)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        return [optimizer], [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]


def main():
    seed_everything(0, verbose=False)
    data = torch.randn(96, 16, generator=torch.Generator().manual_seed(1))
    train = torch.utils.data.DataLoader(data[:48], batch_size=4, shuffle=True)
    validate = torch.utils.data.DataLoader(data[48:], batch_size=8)
    callbacks = [ModelCheckpoint("best", monitor="val_loss", save_top_k=1)]
    plugins = []
    callbacks.append(TierCheckpoint(config="tierckpt.json"))  # <- tierckpt
    plugins.append(TierCheckpointIO())  # <- tierckpt
    trainer = Trainer(max_epochs=3, accelerator="cpu", devices=2, strategy="ddp", logger=False, callbacks=callbacks,
                      plugins=plugins, enable_progress_bar=False, enable_model_summary=False)
    model = Model()
    trainer.fit(model, train, validate)
    trainer.save_checkpoint("last.ckpt")
    again = Model.load_from_checkpoint("last.ckpt", weights_only=False)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))
    best = torch.load(trainer.checkpoint_callback.best_model_path, weights_only=False)
    torch.save({"model": model.state_dict(), "optimizer": trainer.optimizers[0].state_dict(), "random": torch.rand(1),
                "best": best["state_dict"], "score": trainer.checkpoint_callback.best_model_score},
               f"final.{trainer.global_rank}.pt")


if __name__ == "__main__":
    main()
