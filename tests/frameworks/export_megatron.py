# SPDX-License-Identifier: Apache-2.0
"""What test_export_megatron.py runs with megatron-core: models of the families whose names an export can give, trained
and saved with several kinds of parallelism."""

import functools

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

import megatron_training as base
from tierckpt import megatron

FAMILIES = {
    "llama": ({"normalization": "RMSNorm", "gated_linear_unit": True, "activation_func": torch.nn.functional.silu,
               "add_bias_linear": False, "num_query_groups": 2, "ffn_hidden_size": 24, "layernorm_epsilon": 1e-6},
              {"position_embedding_type": "rope", "rotary_base": 10000}),
    "gpt2": ({"activation_func": functools.partial(torch.nn.functional.gelu, approximate="tanh"),
              "ffn_hidden_size": 64},
             {"position_embedding_type": "learned_absolute"}),
}


def _config(family, kind, dtype):
    values = {
        "num_layers": 4, "hidden_size": 16, "num_attention_heads": 4, "use_cpu_initialization": True,
        "pipeline_dtype": dtype, "params_dtype": dtype, "bf16": dtype == torch.bfloat16,
        "tensor_model_parallel_size": kind.tp, "pipeline_model_parallel_size": kind.pp,
        "hidden_dropout": 0.0, "attention_dropout": 0.0, "gradient_accumulation_fusion": False,
        "masked_softmax_fusion": False, "bias_activation_fusion": False, "bias_dropout_fusion": False,
        "persist_layer_norm": False, "finalize_model_grads_func": finalize_model_grads,
    }
    if kind.chunks > 1:
        values["virtual_pipeline_model_parallel_size"] = kind.chunks
    if kind.experts:
        values.update(num_moe_experts=kind.experts, moe_router_topk=1, moe_token_dispatcher_type="allgather",
                      expert_model_parallel_size=kind.ep, moe_router_load_balancing_type="none",
                      moe_router_pre_softmax=True)
    return TransformerConfig(**{**values, **FAMILIES[family][0]})


def _chunks(family, kind, config, tied):
    chunks = []
    for stage in range(kind.chunks):
        virtual = {"vp_stage": stage} if kind.chunks > 1 else {}
        place = {"ignore_virtual": kind.chunks == 1, **virtual}
        spec = get_gpt_layer_local_spec(num_experts=kind.experts or None, normalization=config.normalization)
        model = GPTModel(config=config, vocab_size=base.VOCABULARY, max_sequence_length=base.SEQUENCE,
                         transformer_layer_spec=spec, share_embeddings_and_output_weights=tied,
                         pre_process=parallel_state.is_pipeline_first_stage(**place),
                         post_process=parallel_state.is_pipeline_last_stage(**place),
                         **FAMILIES[family][1], **virtual)
        chunks.append(Float16Module(config, model) if kind.bf16 else model)
    data_parallel = DistributedDataParallelConfig(use_distributed_optimizer=kind.distributed, bucket_size=3000,
                                                  grad_reduce_in_fp32=kind.bf16)
    return [DistributedDataParallel(config, data_parallel, chunk) for chunk in chunks]


class Training(base.Training):
    """The steps of the other tests, with a model of a family."""

    def __init__(self, rank, family, kind, tied):
        self.kind = kind
        parallel_state.initialize_model_parallel(kind.tp, kind.pp, kind.chunks if kind.chunks > 1 else None,
                                                 expert_model_parallel_size=kind.ep)
        torch.manual_seed(3)
        tensor_parallel.model_parallel_cuda_manual_seed(7)
        self.model = _chunks(family, kind, _config(family, kind, kind.dtype()), tied)
        self.optimizer = get_megatron_optimizer(OptimizerConfig(
            optimizer="adam", lr=1e-2, min_lr=1e-3, clip_grad=1.0, params_dtype=kind.dtype(), bf16=kind.bf16,
            use_distributed_optimizer=kind.distributed), self.model)
        self.scheduler = OptimizerParamScheduler(
            self.optimizer, init_lr=1e-2, max_lr=1e-2, min_lr=1e-3, lr_warmup_steps=0, lr_decay_steps=100,
            lr_decay_style="linear", start_wd=0.01, end_wd=0.01, wd_incr_steps=0, wd_incr_style="constant")
        self._pipeline = base.get_forward_backward_func()
        self.losses = []

    def logits(self):
        """Of one batch; on the ranks of the last stage, else None. Collective."""
        tokens = torch.arange(base.BATCH * base.SEQUENCE).reshape(base.BATCH, base.SEQUENCE)
        positions = torch.arange(base.SEQUENCE)[None].expand(base.BATCH, base.SEQUENCE)
        mask = torch.tril(torch.ones(1, 1, base.SEQUENCE, base.SEQUENCE)) < 0.5
        made = []

        def forward(_data, model):
            output = model(tokens, positions, mask)

            def keep(value):
                made.append(value)
                return value.float().mean(), {"loss": value.float().mean()}

            return output, keep

        with torch.no_grad():
            for chunk in self.model:
                chunk.eval()
            self._pipeline(forward_step_func=forward, data_iterator=[None] * len(self.model) if len(self.model) > 1
                           else None, model=self.model if len(self.model) > 1 else self.model[0], num_microbatches=2,
                           seq_length=base.SEQUENCE, micro_batch_size=base.BATCH,
                           decoder_seq_length=base.SEQUENCE, forward_only=True)
        if not made:
            return None
        return tensor_parallel.gather_from_tensor_model_parallel_region(made[0])


def _named(number, chunk):
    while hasattr(chunk, "module"):
        chunk = chunk.module
    return ((f"{number}:{name}", tensor) for name, tensor in chunk.named_parameters())


def train(rank, world, family, kind, config, files, tied=False):
    """Writes the logits of the trained model, and the parameters of each rank."""
    job = Training(rank, family, base.Kind(**kind), tied)
    megatron.initialize_easyckpt(**config)
    megatron.load_checkpoint(*job.state)
    for iteration in (1, 2):
        job.step(iteration)
    megatron.save_checkpoint(2, *job.state, 0, to_storage=True)
    megatron.checkpoint().wait("drained")
    torch.save({name: tensor.detach().clone() for number, chunk in enumerate(job.model)
                for name, tensor in _named(number, chunk)}, f"{files}/rank{rank}.pt")
    logits = job.logits()
    if logits is not None and parallel_state.get_tensor_model_parallel_rank() == 0 \
            and parallel_state.get_data_parallel_rank() == 0:
        torch.save(logits, f"{files}/logits.pt")
    dist.barrier()
    megatron.finalize_easyckpt()


def declare_copies(rank, world, family, kind):
    """What is declared of a model whose gated layers Megatron describes by copies of their halves."""
    from megatron.core.dist_checkpointing.mapping import ShardedTensorFactory
    from megatron.core.transformer import mlp

    from tierckpt.adapters.megatron import contents, export_map
    from tierckpt.runtime.world import join_world

    made = mlp.apply_swiglu_sharded_factory

    def with_copies(*arguments, **keywords):
        factory = made(*arguments, **keywords)
        build = factory.build_fn
        return ShardedTensorFactory(factory.key, factory.data, lambda key, data, *more: build(key, data.clone(), *more),
                                    factory.merge_fn, factory.replica_id)

    mlp.apply_swiglu_sharded_factory = with_copies
    job = Training(rank, family, base.Kind(**kind), tied=False)
    blob = export_map.blob(contents.Model(job.model, rank), set(), join_world())
    mlp.apply_swiglu_sharded_factory = made
    return [tensor for tensor in blob.capture().get("tensors", []) if "linear_fc1.weight" in tensor["name"]]
