# SPDX-License-Identifier: Apache-2.0
"""A training with Hugging Face's Trainer and the two lines that EasyCkpt's document adds."""

import hashlib
import os

import torch
import transformers
from transformers import GPT2Config, GPT2LMHeadModel, TrainerCallback, TrainingArguments

import harness
from aimaster.python.torch.easyckpt.transformers import TrainerWrapper

VOCABULARY, LENGTH = 64, 12


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        ids = torch.randint(0, VOCABULARY, (LENGTH,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


class Watch(TrainerCallback):
    """Notes the first step, and ends the process where the test asks for it."""

    def __init__(self, die_at):
        self.first = None
        self._die_at = die_at

    def on_step_begin(self, args, state, control, **_):
        self.first = state.global_step if self.first is None else self.first
        if state.global_step == self._die_at:
            harness.die()


def train(rank, world, directory, die_at=None):
    """Returns [steps done before, checkpoints that are left, digest of the weights]."""
    os.chdir(directory)
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=VOCABULARY, n_positions=LENGTH,
                                       bos_token_id=0, eos_token_id=0))
    watch = Watch(die_at)
    trainer = transformers.Trainer(
        model=model,
        args=TrainingArguments("output", max_steps=10, save_strategy="steps", save_steps=2, save_total_limit=2,
                               per_device_train_batch_size=2, use_cpu=True, report_to=[], disable_tqdm=True),
        train_dataset=Data(),
        data_collator=transformers.default_data_collator,
        callbacks=[watch],
    )
    trainer = TrainerWrapper(trainer)
    trainer.train(resume_from_checkpoint=True)
    total = hashlib.sha256()
    for tensor in model.state_dict().values():
        total.update(tensor.contiguous().numpy().tobytes())
    return [watch.first, sorted(name for name in os.listdir("output") if name.startswith("checkpoint-")),
            total.hexdigest()]
