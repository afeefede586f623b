# SPDX-License-Identifier: Apache-2.0
"""TRL's SFTTrainer with a tokenizer and a generated data set."""
# needs: trl transformers accelerate datasets tokenizers
# steps: 16

import time

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast,
                          TrainerCallback, set_seed)
from trl import SFTConfig, SFTTrainer

from tierckpt.transformers import TrainerWrapper  # <- tierckpt

WORDS = "the a cat dog bird sees hears likes big small red blue and not runs sleeps".split()


class Progress(TrainerCallback):
    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']!r}", flush=True)
            time.sleep(0.02)  # as if the model were larger


set_seed(0)
words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}, "<unk>"))
words.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")
dice = torch.Generator().manual_seed(1)
texts = [" ".join(WORDS[i] for i in torch.randint(0, len(WORDS), (10,), generator=dice)) for _ in range(40)]
model = LlamaForCausalLM(LlamaConfig(num_hidden_layers=1, num_attention_heads=2, hidden_size=16, vocab_size=32,
                                     intermediate_size=32, max_position_embeddings=32, pad_token_id=0, eos_token_id=1,
                                     bos_token_id=1))
args = SFTConfig("out", max_steps=16, per_device_train_batch_size=2, learning_rate=1e-2, save_strategy="no",
                 logging_steps=1, use_cpu=True, bf16=False, max_length=16, report_to="none", disable_tqdm=True,
                 gradient_checkpointing=False)
trainer = SFTTrainer(model=model, args=args, train_dataset=Dataset.from_dict({"text": texts}),
                     processing_class=tokenizer, callbacks=[Progress()])
resume = None
trainer = TrainerWrapper(trainer, config="tierckpt.json", save_mem_interval=1)  # <- tierckpt
resume = True  # <- tierckpt
trainer.train(resume_from_checkpoint=resume)

trainer.save_model("saved")
again = AutoModelForCausalLM.from_pretrained("saved", dtype=torch.float32)
assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values()))
assert AutoTokenizer.from_pretrained("saved")("the cat")["input_ids"] == tokenizer("the cat")["input_ids"]
torch.save({"model": model.state_dict(), "optimizer": trainer.optimizer.state_dict(),
            "scheduler": trainer.lr_scheduler.state_dict(), "random": torch.rand(1)}, "final.pt")
