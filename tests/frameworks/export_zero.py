# SPDX-License-Identifier: Apache-2.0
"""What test_export_zero.py runs with DeepSpeed: a model of transformers, trained and saved."""

import os

import deepspeed
import torch
import transformers

import ds_training  # what DeepSpeed needs on a CPU
import tierckpt.deepspeed

assert ds_training


def llama(tied=False):
    torch.manual_seed(1)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=36, intermediate_size=50, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        head_dim=10, vocab_size=101, tie_word_embeddings=tied))


def train(rank, world, stage, dtype, tied, config, files):
    """Writes the whole weights of the trained model, as DeepSpeed gathers them, to state.pt."""
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    model = llama(tied)
    if rank == 0:
        model.save_pretrained(files)
    settings = {"train_micro_batch_size_per_gpu": 2, "zero_allow_untested_optimizer": True,
                "zero_force_ds_cpu_optimizer": False, "steps_per_print": 10**9,
                "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 20}}
    if dtype == "bf16":
        settings["bf16"] = {"enabled": True}
    engine, _, _, _ = deepspeed.initialize(model=model, model_parameters=list(model.parameters()), config=settings,
                                           optimizer=torch.optim.AdamW(model.parameters(), lr=1e-2))
    checkpoint = tierckpt.deepspeed.attach(engine, config=config, overrides={"node": f"node{rank}"})
    torch.manual_seed(rank)
    for _ in range(2):
        batch = torch.randint(0, 101, (2, 8))
        engine.backward(engine(input_ids=batch, labels=batch).loss)
        engine.step()
    checkpoint.save_checkpoint(to_storage=True)
    checkpoint.wait("drained")
    parameters = list(engine.module.parameters())
    with deepspeed.zero.GatheredParameters(parameters, enabled=stage == 3):
        state = {name: tensor.detach().clone() for name, tensor in engine.module.state_dict().items()}
    with torch.no_grad():
        logits = engine.module.eval()(torch.arange(24).reshape(2, 12)).logits
    if rank == 0:
        torch.save(state, f"{files}/state.pt")
        torch.save(logits, f"{files}/logits.pt")
    checkpoint.close(job_done=True)
