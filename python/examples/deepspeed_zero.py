# SPDX-License-Identifier: Apache-2.0
"""A training under DeepSpeed ZeRO with Tierckpt. The lines to add are marked with <<<.

    deepspeed deepspeed_zero.py --steps 100 --tierckpt tierckpt.json
"""

import argparse

import deepspeed
import torch

import tierckpt.deepspeed  # <<<

CONFIG = {
    "train_micro_batch_size_per_gpu": 4,
    "gradient_accumulation_steps": 2,
    "bf16": {"enabled": True},
    "zero_optimization": {"stage": 2},
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}},
    "steps_per_print": 10**9,
}


def main(arguments=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--stage", type=int, default=2)
    parser.add_argument("--tierckpt", default="tierckpt.json")
    parser.add_argument("--local_rank", type=int, default=0)  # the deepspeed launcher adds it
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.Linear(32, 1))
    config = {**CONFIG, "zero_optimization": {"stage": options.stage}}
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
    position = {"batches": 0}
    checkpoint = tierckpt.deepspeed.attach(engine, config=options.tierckpt, client_state=position)  # <<<
    resumed = checkpoint.load_checkpoint()  # <<<
    while engine.global_steps < options.steps:
        position["batches"] += 1
        loss = engine(torch.randn(4, 16, dtype=torch.bfloat16)).float().square().mean()
        engine.backward(loss)
        engine.step()
        checkpoint.save_checkpoint_if_needed()  # <<<
    checkpoint.save_last()  # <<<
    checkpoint.close()  # <<<
    return [resumed, position["batches"], loss.item()]


if __name__ == "__main__":
    step, batches, loss = main()
    print(f"resumed at step {step}, {batches} batches, loss {loss}")
