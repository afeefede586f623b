# SPDX-License-Identifier: Apache-2.0
"""Transformers' Trainer with a PEFT LoRA adapter and gradient accumulation."""
# needs: transformers accelerate peft
# steps: 16

import time

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

from tierckpt.transformers import TrainerWrapper  # <- tierckpt


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 24

    def __getitem__(self, i):
        ids = torch.randint(0, 64, (12,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


class Progress(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']!r}", flush=True)
            time.sleep(0.02)  # as if the model were larger


def base():
    set_seed(0)
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=64, n_positions=16, bos_token_id=0,
                                      eos_token_id=0))


model = get_peft_model(base(), LoraConfig(r=4, lora_dropout=0.1, target_modules=["c_attn"], fan_in_fan_out=True,
                                          task_type="CAUSAL_LM"))
args = TrainingArguments("out", max_steps=16, per_device_train_batch_size=2, gradient_accumulation_steps=2,
                         learning_rate=1e-2, save_strategy="no", logging_steps=1, use_cpu=True, report_to="none",
                         disable_tqdm=True)
trainer = Trainer(model=model, args=args, train_dataset=Data(), callbacks=[Progress()])
resume = None
trainer = TrainerWrapper(trainer, config="tierckpt.json", save_mem_interval=1)  # <- tierckpt
resume = True  # <- tierckpt
trainer.train(resume_from_checkpoint=resume)

model.save_pretrained("adapter")
again = PeftModel.from_pretrained(base(), "adapter")
ids = torch.arange(12).unsqueeze(0)
assert torch.equal(model.eval()(ids).logits, again.eval()(ids).logits)
torch.save({"model": model.state_dict(), "optimizer": trainer.optimizer.state_dict(),
            "scheduler": trainer.lr_scheduler.state_dict(), "random": torch.rand(1)}, "final.pt")
