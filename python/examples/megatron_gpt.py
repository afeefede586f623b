# SPDX-License-Identifier: Apache-2.0
"""Pretrains a tiny GPT with the objects of megatron-core. The lines with "tierckpt" make it survive lost nodes.

    torchrun --nproc-per-node 2 megatron_gpt.py ITERATIONS tierckpt.json

A program of Megatron-LM (pretrain_gpt.py) needs only one line, before it calls pretrain():

    import tierckpt.megatron.hook
"""

import sys

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.transformer.transformer_config import TransformerConfig

import tierckpt.megatron as tierckpt

SEQUENCE, BATCH, VOCABULARY = 16, 2, 128


def build():
    config = TransformerConfig(
        num_layers=2, hidden_size=32, num_attention_heads=2, use_cpu_initialization=True, pipeline_dtype=torch.float32,
        gradient_accumulation_fusion=False, persist_layer_norm=False, finalize_model_grads_func=finalize_model_grads)
    model = GPTModel(config, get_gpt_layer_local_spec(), VOCABULARY, SEQUENCE)
    data_parallel = DistributedDataParallelConfig(use_distributed_optimizer=True)
    model = [DistributedDataParallel(config, data_parallel, model)]
    optimizer = get_megatron_optimizer(
        OptimizerConfig(optimizer="adam", lr=1e-3, min_lr=1e-4, use_distributed_optimizer=True), model)
    scheduler = OptimizerParamScheduler(
        optimizer, init_lr=0.0, max_lr=1e-3, min_lr=1e-4, lr_warmup_steps=2, lr_decay_steps=1000,
        lr_decay_style="cosine", start_wd=0.01, end_wd=0.01, wd_incr_steps=0, wd_incr_style="constant")
    return model, optimizer, scheduler


def batches(iteration):
    """The data of an iteration follow from its number, so nothing else has to be saved to continue."""
    generator = torch.Generator().manual_seed(iteration * 1000 + parallel_state.get_data_parallel_rank())
    while True:
        yield torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator)


def forward(data, model):
    tokens = next(data)
    positions = torch.arange(SEQUENCE).expand(BATCH, SEQUENCE)
    mask = torch.tril(torch.ones(1, 1, SEQUENCE, SEQUENCE)) < 0.5
    output = model(tokens, positions, mask, labels=(tokens + 1) % VOCABULARY)
    return output, lambda output: (output.mean(), {"loss": output.mean().item()})


def step(iteration, model, optimizer, scheduler):
    model[0].zero_grad_buffer()
    optimizer.zero_grad()
    losses = get_forward_backward_func()(
        forward_step_func=forward, data_iterator=batches(iteration), model=model, num_microbatches=2,
        seq_length=SEQUENCE, micro_batch_size=BATCH, forward_only=False)
    optimizer.step()
    scheduler.step(increment=1)
    return sum(loss["loss"] for loss in losses) / len(losses)


def main(iterations, config):
    if not dist.is_initialized():
        dist.init_process_group()
    parallel_state.initialize_model_parallel()
    tensor_parallel.model_parallel_cuda_manual_seed(7)
    model, optimizer, scheduler = build()

    # Intervals can be given here, too: save_mem_interval=1, save_storage_interval=100, max_ckpt_num=3.
    tierckpt.initialize_easyckpt(config=config)
    iteration, _ = tierckpt.load_checkpoint(model, optimizer, scheduler)
    while iteration < iterations:
        loss = step(iteration, model, optimizer, scheduler)
        iteration += 1
        tierckpt.save_checkpoint_if_needed(iteration, model, optimizer, scheduler)
        if dist.get_rank() == 0:
            print(f"iteration {iteration}: loss {loss:.6f}", flush=True)
    tierckpt.finalize_easyckpt()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
