# SPDX-License-Identifier: Apache-2.0
"""Transformers' Trainer in bf16 on two ranks (torchrun), with its own checkpoints on storage as well."""
# needs: transformers accelerate
# launch: torchrun --standalone --nproc-per-node 2 {script}
# steps: 16

import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

from tierckpt.transformers import TrainerWrapper  # <- tierckpt


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        ids = torch.randint(0, 64, (12,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


class Progress(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs and state.is_world_process_zero:
            print(f"step {state.global_step} loss {logs['loss']!r}", flush=True)
            time.sleep(0.02)  # as if the model were larger


def main():
    set_seed(0)
    model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, num_attention_heads=2, hidden_size=16, vocab_size=64,
                                         intermediate_size=32, max_position_embeddings=16, attention_dropout=0.1))
    args = TrainingArguments("out", max_steps=16, per_device_train_batch_size=2, learning_rate=1e-2, bf16=True,
                             save_steps=6, save_total_limit=1, logging_steps=1, use_cpu=True, ddp_backend="gloo",
                             report_to="none", disable_tqdm=True)
    trainer = Trainer(model=model, args=args, train_dataset=Data(), callbacks=[Progress()])
    resume = None
    trainer = TrainerWrapper(trainer, config="tierckpt.json", save_mem_interval=1)  # <- tierckpt
    resume = True  # <- tierckpt
    trainer.train(resume_from_checkpoint=resume)
    again = LlamaForCausalLM.from_pretrained("out/checkpoint-16", dtype=torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))
    torch.save({"model": model.state_dict(), "optimizer": trainer.optimizer.state_dict(),
                "scheduler": trainer.lr_scheduler.state_dict(), "random": torch.rand(1)},
               f"final.{args.process_index}.pt")
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
