# SPDX-License-Identifier: Apache-2.0
"""A small training with Hugging Face's Trainer in which every step depends on everything that a checkpoint must
restore."""

import contextlib
import hashlib
import json
import os
import random
import runpy
import time
from pathlib import Path

import numpy
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_callback import ExportableState

import moved
import tierckpt
from counted import count
from harness import die
from observers import Heard, WeightWriter, settle
from tierckpt.adapters.hf_layout import PlainCheckpoints
from tierckpt.adapters.transformers import _History
from tierckpt.transformers import TrainerWrapper

VOCABULARY, LENGTH, SAMPLES = 64, 12, 24


class Data(torch.utils.data.Dataset):
    def __init__(self, seed=0):
        self._seed = seed

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        ids = torch.randint(0, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(1000 * self._seed + i))
        return {"input_ids": ids, "labels": ids}


class Counter(TrainerCallback, ExportableState):
    """A callback with a state that must be restored."""

    def __init__(self):
        self.steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.steps += 1

    def state(self):
        return {"args": {}, "attributes": {"steps": self.steps}}


def meet(directory, rank, world):
    """Waits until all ranks have arrived; without a collective, which may fail when one of them ends."""
    Path(directory, f"here.{rank}").touch()
    while not all(Path(directory, f"here.{other}").exists() for other in range(world)):
        time.sleep(0.01)


class Death(TrainerCallback):
    """All ranks end at the beginning of the step after `at`, as by kill -9, once the save of step `sure` has reached
    `stage`, or, with the stage "written", is a directory of the Trainer's."""

    def __init__(self, wrapper, at, sure, stage, rank, world):
        self._wrapper, self._at, self._sure, self._stage = wrapper, at, sure, stage
        self._rank, self._world = rank, world

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step < self._sure:
            settle(self._wrapper.checkpoint)
        if state.global_step == self._sure and self._stage == "written":
            while not Path(args.output_dir, f"checkpoint-{self._sure}").is_dir():
                time.sleep(0.01)
            self._wrapper.checkpoint.wait("committed")
        elif state.global_step == self._sure:
            self._wrapper.checkpoint.wait(self._stage, self._sure)
        if state.global_step == self._at:
            meet(os.getcwd(), self._rank, self._world)
            die()


class Failure(TrainerCallback):
    """An error raised by the training program."""

    def __init__(self, at):
        self._at = at

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step == self._at:
            raise ArithmeticError("of the training program")


def _no_space(trainer, at):
    """The model of a step is written by half, and then the disk is full."""
    save = trainer._save

    def half(output_dir=None, state_dict=None):
        save(output_dir, state_dict=state_dict)
        if output_dir is not None and output_dir.endswith(f"checkpoint-{at}"):
            weights = Path(output_dir, "model.safetensors")
            os.truncate(weights, weights.stat().st_size // 2)
            raise OSError(28, "No space left on device")

    trainer._save = half


class Writer(TrainerCallback, WeightWriter):
    def __init__(self, wrapper):
        self._wrapper = wrapper

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        self.before(state.global_step, self._wrapper.checkpoint, model)


def written(rank, world, output_dir, config):
    """True if the first save was given up."""
    wrapper = TrainerWrapper(make(rank, world, output_dir, 3), config)
    writer = Writer(wrapper)
    wrapper.add_callback(writer)
    wrapper.train()
    return writer.given_up


def model():
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=VOCABULARY, n_positions=LENGTH,
                                      bos_token_id=0, eos_token_id=0))


class Twisted(torch.nn.Module):
    """Uses its layers in an order other than that of their definition. DistributedDataParallel guesses the order of the
    gradients from the definition, so it reorders its buckets after the first step."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.last = count(torch.nn.Linear(16, VOCABULARY))
        self.layers = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(6))
        self.first = torch.nn.Embedding(VOCABULARY, 16)

    def forward(self, input_ids, labels):
        hidden = self.first(input_ids)
        for i in (3, 0, 5, 2, 4, 1):
            hidden = torch.tanh(self.layers[i](hidden))
        logits = self.last(hidden)
        return {"loss": torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())}


def set_environment(rank, world):
    """Sets the environment as torchrun does."""
    if world > 1:
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1",
                          MASTER_PORT="1")


def make(rank, world, output_dir, steps, kind="gpt2", **arguments):
    set_environment(rank, world)
    values = {"max_steps": steps, "save_strategy": "no", "logging_steps": 2, **arguments}
    args = TrainingArguments(
        output_dir=output_dir, use_cpu=True, ddp_backend="gloo" if world > 1 else None, report_to="none",
        per_device_train_batch_size=2, gradient_accumulation_steps=2, learning_rate=1e-2, disable_tqdm=True,
        restore_callback_states_from_checkpoint=True, **values)
    return Trainer(model=Twisted() if kind == "twisted" else model(), args=args, train_dataset=Data(),
                   eval_dataset=Data(1), callbacks=[Counter()])


def digest(trainer):
    """A digest of everything that the next steps depend on, and of the log history."""
    total = hashlib.sha256()
    tensors = list(trainer.model.state_dict().values()) + [torch.get_rng_state()]
    optimizer = trainer.optimizer.optimizer
    for group in optimizer.param_groups:
        for param in group["params"]:
            tensors += [optimizer.state[param][key] for key in sorted(optimizer.state[param])]
    for tensor in tensors:
        total.update(tensor.detach().contiguous().numpy().tobytes())
    counter, = (one for one in trainer.callback_handler.callbacks if isinstance(one, Counter))
    state = trainer.state
    rest = (losses(trainer), state.global_step, state.epoch, state.total_flos, state.best_metric, counter.steps,
            trainer.lr_scheduler.state_dict(), [group["lr"] for group in optimizer.param_groups], random.getstate(),
            numpy.random.get_state()[1].tobytes())
    total.update(repr(rest).encode())
    return total.hexdigest()


def losses(trainer):
    """The log history, without entries that depend on time."""
    slow = ("runtime", "per_second", "train_loss", "total_flos")
    return [{key: value for key, value in sorted(entry.items()) if not any(part in key for part in slow)}
            for entry in trainer.state.log_history]


def result(trainer):
    best = trainer.state.best_model_checkpoint
    return {"digest": digest(trainer), "losses": losses(trainer), "best": best and os.path.basename(best)}


def train(rank, world, output_dir, steps, config=None, own_nodes=False, resume=True, die_at=None, sure=None,
          stage="committed", half_done=False, raise_at=None, no_space_at=None, on_device=None, **arguments):
    """Returns the result. Without config: the plain Trainer. half_done: no checkpoint-<step> is ever completed.
    no_space_at: that of this step is not. on_device: how tensors are moved while a version is read (moved.WhileRead).
    """
    if half_done:
        PlainCheckpoints._finish = lambda *_: time.sleep(1000)
    trainer = make(rank, world, output_dir, steps, **arguments)
    if no_space_at is not None and rank == 0:
        _no_space(trainer, no_space_at)
    if config is None:
        trainer.train(resume_from_checkpoint=resume or None)
        return result(trainer)
    wrapper = TrainerWrapper(trainer, config, overrides={"node": f"node{rank}"} if own_nodes else None)
    seen, heard = SeenState(wrapper), Heard()
    wrapper.add_callback(seen)
    if die_at is not None:
        wrapper.add_callback(Death(wrapper, die_at, sure or die_at, stage, rank, world))
    if raise_at is not None:
        wrapper.add_callback(Failure(raise_at))
        with contextlib.suppress(ArithmeticError):
            wrapper.train(resume_from_checkpoint=resume)
        assert wrapper.checkpoint is None
        return None
    device = on_device and moved.WhileRead(lambda: moved.of([trainer.model], [trainer.optimizer.optimizer]),
                                            **on_device)
    wrapper.train(resume_from_checkpoint=resume)
    return {**result(trainer), "trained": trained(trainer), "resumed": seen.resumed, "loaded": seen.loaded,
            "source": seen.source, "log": heard.lines, "device": device and device.report()}


def trained(trainer):
    """A digest of the model and the optimizer, and what is the same on all ranks beside them."""
    total, optimizer = hashlib.sha256(), trainer.optimizer.optimizer
    tensors = [trainer.model.state_dict(), *optimizer.state_dict()["state"].values()]
    for tensor in (tensor for of_one in tensors for _, tensor in sorted(of_one.items())):
        total.update(tensor.detach().contiguous().numpy().tobytes())
    counter, = (one for one in trainer.callback_handler.callbacks if isinstance(one, Counter))
    return [total.hexdigest(), counter.steps, trainer.lr_scheduler.state_dict()["last_epoch"],
            [group["lr"] for group in optimizer.param_groups], trainer.state.global_step, losses(trainer)[:1]]


class Seen(TrainerCallback):
    """Records what was restored."""

    def __init__(self, wrapper):
        self._wrapper = wrapper

    def on_train_begin(self, args, state, control, **kwargs):
        restored = self._wrapper.checkpoint.restored
        self.resumed = state.global_step
        self.source = restored and {name: getattr(restored, name) for name in (
            "bytes_local", "bytes_twin", "bytes_peer", "bytes_storage")}


class SeenState(Seen):
    """And a digest of it, with a plain optimizer."""

    def on_train_begin(self, args, state, control, **kwargs):
        super().on_train_begin(args, state, control, **kwargs)
        self.loaded = trained(self._wrapper)


def unknown_version(rank, world, output_dir, steps, config):
    """Trains with a Trainer that saves differently from the known one."""
    Trainer._save_checkpoint = lambda self, something_else: None
    trainer = make(rank, world, output_dir, steps)
    heard = Heard()
    TrainerWrapper(trainer, config).train(resume_from_checkpoint=True)
    return {**result(trainer), "log": heard.lines}


def wrong_use(rank, world, output_dir):
    """Returns the errors of TrainerWrapper, and which object its attributes belong to."""
    trainer = make(rank, world, output_dir, 1)
    wrapper = TrainerWrapper(trainer, {"save_storage_interval": 5})
    wrapper.something = 1
    assert trainer.something == 1 and wrapper.args is trainer.args and wrapper.checkpoint is None
    texts = []
    for change in ({"plain_checkpoints": False}, {"each_node": True}):
        trainer.args.save_on_each_node = change.pop("each_node", False)
        try:
            TrainerWrapper(trainer, {"storage_format": "framework"}, **change)
        except tierckpt.Error as error:
            texts.append(str(error))
    for target, name in ((trainer.args, "push_to_hub"), (trainer, "is_fsdp_enabled")):
        setattr(target, name, True)
        try:
            TrainerWrapper(trainer)
        except tierckpt.Error as error:
            texts.append(str(error))
        trainer.args.push_to_hub = False
    return texts


def long_history(rank, world):
    """Returns the part that is restored of a log history larger than its limit."""
    history = _History(1000)
    entries = [{"loss": 1 / (1 + i), "step": i} for i in range(20)]
    first = history.entries(history.text(entries)) == entries
    entries += [{"loss": float("nan"), "step": i, "text": "\n\""} for i in range(20, 60)]
    text = history.text(entries)
    back = history.entries(text)
    other = history.entries(history.text(entries[:3]))
    return [first, len(json.dumps(text)) <= 1002, repr(back) == repr(entries[-len(back):]), len(back) > 5,
            other == entries[:3]]


def example(rank, world, path, runtime_dir, output_dir, steps):
    set_environment(rank, world)
    os.environ["TIERCKPT_RUNTIME_DIR"] = runtime_dir
    runpy.run_path(path)["main"](output_dir, steps)
