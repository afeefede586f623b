# SPDX-License-Identifier: Apache-2.0
"""Hugging Face's Trainer with checkpoints in memory. The lines to add are marked.

    torchrun --nproc-per-node 2 transformers_trainer.py OUTPUT_DIR [STEPS]

Kill it and start it again: it continues where it stopped.
"""

import os
import sys

import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

from tierckpt.transformers import TrainerWrapper  # <- added


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 256

    def __getitem__(self, i):
        ids = torch.randint(0, 128, (32,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


def main(output_dir, steps=100):
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=128, n_positions=32))
    args = TrainingArguments(output_dir=output_dir, max_steps=steps, save_steps=20, save_total_limit=3, use_cpu=True,
                             ddp_backend="gloo" if "RANK" in os.environ else None, report_to="none",
                             logging_steps=10)
    trainer = Trainer(model=model, args=args, train_dataset=Data())
    trainer = TrainerWrapper(trainer, save_mem_interval=1)  # <- added
    trainer.train(resume_from_checkpoint=True)
    print(f"trained to step {trainer.state.global_step}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
