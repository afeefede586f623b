# SPDX-License-Identifier: Apache-2.0
"""Small trainings with Lightning in which every step depends on everything that a checkpoint must restore."""

import hashlib
import logging
import os
import warnings
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping, EMAWeightAveraging, ModelCheckpoint
from lightning.pytorch.plugins import MixedPrecision
from lightning.pytorch.trainer.connectors.checkpoint_connector import _CheckpointConnector

import tierckpt
from counted import count
from harness import die
from observers import WeightWriter, settle
from tierckpt.lightning import TierCheckpoint, TierCheckpointIO

SAMPLES, BATCH = 24, 4  # six batches in an epoch


class Samples(torch.utils.data.Dataset):
    """Draws from the global generator, as augmentation does, unless it runs in a worker, whose generator is not
    saved."""

    def __init__(self, seed, noise):
        self._rows = torch.randn(SAMPLES, 8, generator=torch.Generator().manual_seed(seed))
        self._noise = noise

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        return self._rows[i] + (self._noise * torch.rand(8) if self._noise else 0)


class Model(LightningModule):
    def __init__(self, directory, size=8):
        super().__init__()
        self.save_hyperparameters()
        self._losses = Path(directory, "losses")
        self.layers = torch.nn.Sequential(count(torch.nn.Linear(8, 16)), torch.nn.BatchNorm1d(16), torch.nn.ReLU(),
                                          torch.nn.Dropout(0.2), torch.nn.Linear(16, size))

    def training_step(self, batch, batch_idx):
        loss = torch.nn.functional.mse_loss(self.layers(batch), batch)
        self.log("loss", loss)
        with self._losses.open("a") as file:
            print(self.global_step, batch_idx, loss.item(), batch.sum().item(), file=file)
        return loss

    def validation_step(self, batch, batch_idx):
        self.log("val_loss", torch.nn.functional.mse_loss(self.layers(batch), batch))

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 5, 0.7)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler,
                                                         "interval": "step"}}


class Plateau(Model):
    """Its schedule depends on the validation loss and on its own number of steps."""

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=0.02 + self.trainer.estimated_stepping_batches * 1e-4,
                                    momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "monitor": "val_loss"}}


class Two(Model):
    """Two optimizers, stepped manually."""

    automatic_optimization = False

    def __init__(self, directory):
        super().__init__(directory)
        self.automatic_optimization = False
        self.critic = torch.nn.Linear(8, 1)

    def training_step(self, batch, batch_idx):
        losses = (lambda: super(Two, self).training_step(batch, batch_idx),
                  lambda: (self.critic(self.layers(batch).detach()) - 1).square().mean())
        for optimizer, loss in zip(self.optimizers(), losses, strict=True):
            optimizer.zero_grad()
            self.manual_backward(loss())
            optimizer.step()

    def configure_optimizers(self):
        return [torch.optim.Adam(self.layers.parameters(), lr=1e-2), torch.optim.SGD(self.critic.parameters(), lr=0.1)]


class Data(LightningDataModule):
    """A data module with a state of its own, which must be restored."""

    def __init__(self, stateful=False, workers=0):
        super().__init__()
        self.asked, self._stateful, self._workers = 0, stateful, workers

    def _loader(self, seed, shuffle):
        kind = torch.utils.data.DataLoader
        if self._stateful and shuffle:
            from torchdata.stateful_dataloader import StatefulDataLoader as kind
        return kind(Samples(seed, 0 if self._stateful else 0.1), batch_size=BATCH, shuffle=shuffle,
                    num_workers=self._workers if shuffle else 0)

    def train_dataloader(self):
        return self._loader(0, True)

    def val_dataloader(self):
        return self._loader(1, False)

    def state_dict(self):
        return {"asked": self.asked}

    def load_state_dict(self, value):
        self.asked = value["asked"]


class Counter(Callback):
    """A callback with a state that must be restored."""

    def __init__(self):
        self.seen = {"batches": 0, "epochs": 0, "validations": 0, "best": torch.tensor(float("inf"))}

    def on_train_batch_end(self, trainer, *_):
        self.seen["batches"] += 1
        trainer.datamodule.asked += 1

    def on_train_epoch_end(self, trainer, pl_module):
        self.seen["epochs"] += 1

    def on_validation_end(self, trainer, pl_module):
        if not trainer.sanity_checking:
            self.seen["validations"] += 1
            self.seen["best"] = torch.minimum(self.seen["best"], trainer.callback_metrics["val_loss"])

    def state_dict(self):
        return self.seen

    def load_state_dict(self, value):
        self.seen = value


class End(Callback):
    """Dies, or raises, when this batch begins; `sure`: once that step is in this stage."""

    def __init__(self, tier, at, act, stage="committed"):
        self._tier, self._at, self._act, self._stage, self._batches = tier, at, act, stage, 0

    def on_train_batch_start(self, trainer, *_):
        settle(self._tier.checkpoint)
        if self._batches == self._at:
            self._tier.checkpoint.wait(self._stage)
            self._act()
        self._batches += 1


class Writer(Callback, WeightWriter):
    def __init__(self, tier):
        self._tier = tier

    def on_train_batch_start(self, trainer, module, batch, number):
        self.before(number, self._tier.checkpoint, module)


def written(rank, world, directory, config):
    """True if the first save was given up."""
    os.makedirs(directory, exist_ok=True)
    tier = TierCheckpoint(config)
    writer = Writer(tier)
    trainer_of(directory, [tier, writer], max_epochs=1).fit(Model(directory), datamodule=Data(False, 0))
    return writer.given_up


class Seen(Callback):
    def __init__(self, tier):
        self._tier, self.resumed, self.source = tier, None, None

    def on_train_start(self, trainer, pl_module):
        restored = self._tier.checkpoint.restored
        self.resumed = trainer.global_step
        self.source = restored and ("storage" if restored.bytes_storage else "memory")


def _raise():
    raise ArithmeticError("of the training program")


def trainer_of(directory, callbacks=(), scaler=False, plugin=False, **arguments):
    plugins = [TierCheckpointIO()] if plugin else []
    if scaler:
        plugins.append(MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**18,
                                                                               growth_interval=2)))
    values = {"max_epochs": 3, "enable_checkpointing": False, **arguments}
    return Trainer(default_root_dir=directory, accelerator="cpu", devices=1, logger=False, plugins=plugins or None,
                   enable_progress_bar=False, enable_model_summary=False, callbacks=list(callbacks), **values)


def train(rank, world, directory, config=None, kind="Model", die_at=None, raise_at=None, seed=0, best=None,
          stage="committed", ckpt_path=None, stateful=False, workers=0, **arguments):
    """Returns the final state. Without config: Lightning alone."""
    warnings.simplefilter("ignore")
    os.makedirs(directory, exist_ok=True)
    torch.manual_seed(seed)
    model, data, counter = globals()[kind](directory), Data(stateful, workers), Counter()
    callbacks, tier, seen = [counter], None, None
    if best is not None:
        callbacks += [ModelCheckpoint(directory, monitor="val_loss", save_top_k=2),
                      EarlyStopping("val_loss", patience=9)]
        arguments["enable_checkpointing"] = True
    if config is not None:
        tier = TierCheckpoint(config)
        seen = Seen(tier)
        callbacks += [tier, seen]
    if die_at is not None:
        callbacks.append(End(tier, die_at, die, stage))
    if raise_at is not None:
        callbacks.append(End(tier, raise_at, _raise, stage))
    trainer = trainer_of(directory, callbacks, **arguments)
    try:
        trainer.fit(model, datamodule=data, ckpt_path=ckpt_path)
    except ArithmeticError:
        return {"closed": tier.checkpoint is None}
    return {"digest": digest(trainer, model), "state": state(trainer, counter, data),
            "losses": Path(directory, "losses").read_text().splitlines(),
            "resumed": seen and seen.resumed, "source": seen and seen.source}


def state(trainer, counter, data):
    loops = {key: value for key, value in trainer.fit_loop.state_dict().items() if "val_loop" not in key}
    kept = [one.state_dict() for one in trainer.callbacks if isinstance(one, (ModelCheckpoint, EarlyStopping))]
    return [repr(counter.seen), data.asked, repr(loops["epoch_loop.batch_progress"]), repr(loops["epoch_progress"]),
            repr(loops["epoch_loop.state_dict"]), repr([one.scheduler.state_dict() for one in
                                                       trainer.lr_scheduler_configs]),
            repr(trainer.precision_plugin.state_dict()), repr(kept).replace(trainer.default_root_dir, "")]


def digest(trainer, model):
    total = hashlib.sha256()
    tensors = [*model.state_dict().values(), torch.get_rng_state()]
    for optimizer in trainer.optimizers:
        for group in optimizer.param_groups:
            total.update(repr(group["lr"]).encode())
            for param in group["params"]:
                tensors += [value for _, value in sorted(optimizer.state[param].items()) if torch.is_tensor(value)]
    for tensor in tensors:
        total.update(tensor.detach().contiguous().numpy().tobytes())
    return total.hexdigest()


def files(rank, world, directory, config):
    """With the plugin, trainer.save_checkpoint writes a file that plain Lightning can load and that is complete when it
    appears."""
    os.makedirs(directory)
    tier, model = TierCheckpoint(config), Model(directory)
    trainer = trainer_of(directory, [Counter(), tier, ModelCheckpoint(directory, every_n_train_steps=2, save_top_k=-1)],
                         plugin=True, max_epochs=1, enable_checkpointing=True)
    trainer.fit(model, datamodule=Data())
    written = sorted(path.name for path in Path(directory).glob("*.ckpt*"))
    trainer.save_checkpoint(Path(directory, "after.ckpt"))
    loaded = Model.load_from_checkpoint(Path(directory, "after.ckpt"), weights_only=False)
    same = all(torch.equal(a, b) for a, b in zip(
        loaded.state_dict().values(), model.state_dict().values(), strict=True))
    plain = trainer_of(directory, [Counter()], max_epochs=2)
    plain.fit(Model(directory), datamodule=Data(), ckpt_path=Path(directory, "after.ckpt"), weights_only=False)
    return {"written": written, "same": same, "steps": plain.global_step}


def unsupported(rank, world, directory, config):
    os.makedirs(directory)
    trainer = trainer_of(directory, [TierCheckpoint(config), EMAWeightAveraging()])
    try:
        trainer.fit(Model(directory), datamodule=Data())
    except tierckpt.Error as error:
        return f"{type(error).__name__}: {error}"


def another_lightning(rank, world, directory, config):
    """Trains with a Lightning that makes its checkpoints differently from the known one."""
    _CheckpointConnector.dump_checkpoint = lambda self, something_else: {}
    heard = []
    logging.getLogger("tierckpt").addHandler(handler := logging.Handler())
    handler.emit = lambda record: heard.append(record.getMessage())
    os.makedirs(directory)
    tier = TierCheckpoint(config)
    trainer = trainer_of(directory, [Counter(), tier], max_epochs=1)
    trainer.fit(Model(directory), datamodule=Data())
    return {"log": heard, "steps": trainer.global_step}
