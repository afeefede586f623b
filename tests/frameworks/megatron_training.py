# SPDX-License-Identifier: Apache-2.0
"""A small training with megatron-core in which every step depends on everything that a checkpoint must restore."""

import copy
import hashlib
import random
from dataclasses import dataclass, field

import megatron_cpu
import numpy
import torch
import torch.distributed as dist
from counted import count
from harness import die
from megatron.core import parallel_state, tensor_parallel
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region
from megatron.core.transformer.dot_product_attention import DotProductAttention
from megatron.core.transformer.module import Float16Module
from megatron.core.transformer.transformer_config import TransformerConfig

from tierckpt import megatron

megatron_cpu.patch()  # after the imports: torch compiles some of its own functions then

SEQUENCE, BATCH, VOCABULARY, MICROBATCHES = 8, 2, 64, 2


@dataclass
class Kind:
    """How a model is trained: features that are not given are off."""

    bf16: bool = False
    fp16: bool = False
    distributed: bool = False
    overlap: bool = False
    instances: int = 1
    tp: int = 1
    pp: int = 1
    chunks: int = 1
    experts: int = 0
    ep: int = 1
    cp: int = 1
    optimizer: str = "adam"
    tied: bool = False  # one weight for embedding and output
    vocabulary: int = VOCABULARY  # rows of both, some of which may be padding
    model: dict = field(default_factory=dict)

    def dtype(self):
        return torch.bfloat16 if self.bf16 else torch.float16 if self.fp16 else torch.float32


KINDS = {
    "plain": Kind(),
    "sgd": Kind(optimizer="sgd"),
    "bf16": Kind(bf16=True),
    "fp16": Kind(fp16=True),
    "distributed": Kind(distributed=True),
    "distributed_bf16": Kind(distributed=True, bf16=True),
    "overlap": Kind(distributed=True, bf16=True, overlap=True),
    "fp32_overlap": Kind(distributed=True, overlap=True),
    "instances": Kind(distributed=True, bf16=True, instances=2),
    "tp": Kind(tp=2, bf16=True),
    "pp": Kind(pp=2, distributed=True, bf16=True),
    "chunks": Kind(pp=2, chunks=2, distributed=True),
    "experts": Kind(experts=2, ep=2, distributed=True, bf16=True),
    "context": Kind(cp=2, distributed=True, bf16=True),
}


class GatheredAttention(DotProductAttention):
    """Attention from a part of the sequence to the whole sequence, for context parallelism. Megatron's own
    implementation is Transformer Engine's, which requires GPUs."""

    def __init__(self, config, *arguments, **keywords):
        alone = copy.copy(config)
        alone.context_parallel_size = 1
        super().__init__(alone, *arguments, **keywords)

    def forward(self, query, key, value, attention_mask, *arguments, **keywords):
        group = parallel_state.get_context_parallel_group()
        key, value = (gather_from_sequence_parallel_region(part.contiguous(), group=group) for part in (key, value))
        return super().forward(query, key, value, attention_mask, *arguments, **keywords)


def _layers(kind: Kind):
    spec = get_gpt_layer_local_spec(num_experts=kind.experts or None)
    if kind.cp > 1:
        spec.submodules.self_attention.submodules.core_attention = GatheredAttention
    return spec


def _config(kind: Kind) -> TransformerConfig:
    more = {"virtual_pipeline_model_parallel_size": kind.chunks} if kind.chunks > 1 else {}
    if kind.experts:
        more.update(num_moe_experts=kind.experts, moe_router_topk=1, moe_token_dispatcher_type="allgather",
                    expert_model_parallel_size=kind.ep, moe_router_load_balancing_type="none",
                    moe_router_pre_softmax=True, sequence_parallel=kind.tp > 1)
    values = {
        "num_layers": max(2, kind.pp * kind.chunks), "hidden_size": 16, "num_attention_heads": 2,
        "use_cpu_initialization": True, "pipeline_dtype": kind.dtype(), "params_dtype": kind.dtype(),
        "bf16": kind.bf16, "fp16": kind.fp16, "tensor_model_parallel_size": kind.tp,
        "pipeline_model_parallel_size": kind.pp, "context_parallel_size": kind.cp,
        "hidden_dropout": 0.1, "attention_dropout": 0.1,
        "gradient_accumulation_fusion": False, "masked_softmax_fusion": False, "bias_activation_fusion": False,
        "bias_dropout_fusion": False, "persist_layer_norm": False, "finalize_model_grads_func": finalize_model_grads,
    }
    return TransformerConfig(**{**values, **more, **kind.model})


def _model(kind: Kind, config) -> list:
    chunks = []
    for stage in range(kind.chunks):
        virtual = {"vp_stage": stage} if kind.chunks > 1 else {}
        place = {"ignore_virtual": kind.chunks == 1, **virtual}
        model = GPTModel(config=config, vocab_size=kind.vocabulary, max_sequence_length=SEQUENCE,
                         transformer_layer_spec=_layers(kind),
                         pre_process=parallel_state.is_pipeline_first_stage(**place),
                         post_process=parallel_state.is_pipeline_last_stage(**place),
                         share_embeddings_and_output_weights=kind.tied, **virtual)
        for layer in model.decoder.layers:
            count(layer.input_layernorm)
        chunks.append(Float16Module(config, model) if kind.bf16 or kind.fp16 else model)
    data_parallel = DistributedDataParallelConfig(
        use_distributed_optimizer=kind.distributed, overlap_grad_reduce=kind.overlap, bucket_size=3000,
        overlap_param_gather=kind.overlap, grad_reduce_in_fp32=kind.bf16,
        num_distributed_optimizer_instances=kind.instances)
    return [DistributedDataParallel(config, data_parallel, chunk) for chunk in chunks]


class Training:
    def __init__(self, rank, kind, **model):
        """`kind`: a name in KINDS, or the features."""
        named = vars(KINDS[kind]) if isinstance(kind, str) else kind
        self.kind = Kind(**{**named, "model": {**named.get("model", {}), **model}})
        parallel_state.initialize_model_parallel(
            self.kind.tp, self.kind.pp, self.kind.chunks if self.kind.chunks > 1 else None,
            context_parallel_size=self.kind.cp, expert_model_parallel_size=self.kind.ep,
            num_distributed_optimizer_instances=self.kind.instances)
        torch.manual_seed(3)
        tensor_parallel.model_parallel_cuda_manual_seed(7)
        config = _config(self.kind)
        self.model = _model(self.kind, config)
        self.optimizer = get_megatron_optimizer(OptimizerConfig(
            optimizer=self.kind.optimizer, lr=1e-2, min_lr=1e-3, weight_decay=0.01, clip_grad=1.0,
            params_dtype=self.kind.dtype(),
            bf16=self.kind.bf16, fp16=self.kind.fp16, initial_loss_scale=256.0, loss_scale_window=2,
            use_distributed_optimizer=self.kind.distributed, overlap_param_gather=self.kind.overlap), self.model)
        self.scheduler = OptimizerParamScheduler(
            self.optimizer, init_lr=0.0, max_lr=1e-2, min_lr=1e-3, lr_warmup_steps=4, lr_decay_steps=100,
            lr_decay_style="linear", start_wd=0.01, end_wd=0.02, wd_incr_steps=100, wd_incr_style="linear")
        self._pipeline = get_forward_backward_func()
        random.seed(200 + rank)
        numpy.random.seed(300 + rank)
        self.losses = []

    @property
    def state(self):
        return self.model, self.optimizer, self.scheduler

    def _forward(self, data, model):
        tokens = next(data)
        positions = torch.arange(SEQUENCE)[None].expand(BATCH, SEQUENCE)
        mask = torch.tril(torch.ones(1, 1, SEQUENCE, SEQUENCE)) < 0.5
        part = parallel_state.get_context_parallel_rank()
        tokens, positions = (whole.chunk(self.kind.cp, dim=1)[part].contiguous() for whole in (tokens, positions))
        mask = mask.chunk(self.kind.cp, dim=2)[part]
        return model(tokens, positions, mask, labels=(tokens + 1) % VOCABULARY), self._loss

    def _loss(self, output):
        loss = output.float().mean() * (1 + random.random() + numpy.random.rand())
        return loss, {"loss": loss.detach()}

    def _data(self, iteration):
        replica = parallel_state.get_data_parallel_rank()
        for number in range(MICROBATCHES):
            generator = torch.Generator().manual_seed(iteration * 100 + number * 10 + replica)
            yield torch.randint(0, VOCABULARY, (BATCH, SEQUENCE), generator=generator)

    def step(self, iteration):
        for chunk in self.model:
            chunk.zero_grad_buffer()
        self.optimizer.zero_grad()
        data = [self._data(iteration) for _ in self.model]
        outputs = self._pipeline(
            forward_step_func=self._forward, data_iterator=data if len(data) > 1 else data[0],
            model=self.model if len(data) > 1 else self.model[0], num_microbatches=MICROBATCHES, seq_length=SEQUENCE,
            micro_batch_size=BATCH, decoder_seq_length=SEQUENCE, forward_only=False)
        done, _, _ = self.optimizer.step()
        assert done
        self.scheduler.step(increment=MICROBATCHES * BATCH)
        self.losses.append([float(output["loss"]) for output in outputs])

    def settle(self):
        """Gathers parameters that would be gathered during the next forward pass."""
        for chunk in self.model if self.kind.overlap else ():
            chunk.start_param_sync(force_sync=True)

    def digest(self):
        """A digest of everything that the next steps depend on."""
        self.settle()
        total = hashlib.sha256()
        for tensor in self._tensors():
            total.update(tensor.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        total.update(repr(self._rest()).encode())
        return total.hexdigest()

    def _parts(self):
        return self.optimizer.chained_optimizers

    def _tensors(self):
        for chunk in self.model:
            yield from chunk.parameters()
            yield from chunk.module.buffers()
        for part in self._parts():
            for group in part.optimizer.param_groups:
                for param in group["params"]:
                    yield param
                    state = part.optimizer.state[param]
                    yield from (state[key] for key in sorted(state) if state[key] is not None)
        yield torch.get_rng_state()
        states = tensor_parallel.get_cuda_rng_tracker().get_states()
        yield from (states[name] for name in sorted(states))

    def _rest(self):
        groups = [{key: value for key, value in group.items() if key != "params"}
                  for part in self._parts() for group in part.optimizer.param_groups]
        scales = [part.get_loss_scale().tolist() for part in self._parts()]
        return groups, scales, self.scheduler.state_dict(), random.getstate(), numpy.random.get_state()[1].tobytes()


def train(rank, world, kind, steps, config=None, own_nodes=False, die_at=None, in_flight=False, storage_at=None):
    """Trains to `steps`, resuming if a version was saved. Returns [iteration resumed at, flops resumed at, bytes
    by source, losses by iteration, digest]."""
    job = Training(rank, kind)
    if config is None:
        for iteration in range(1, steps + 1):
            job.step(iteration)
        return [None, None, None, dict(enumerate(job.losses, 1)), job.digest()]
    config = {**config, **({"node": f"node{rank}"} if own_nodes else {})}
    megatron.initialize_easyckpt(**config)
    resumed, flops_then = megatron.load_checkpoint(*job.state)
    for iteration in range(resumed + 1, steps + 1):
        job.step(iteration)
        started = megatron.save_checkpoint_if_needed(iteration, *job.state, iteration * 1000)
        if started and not (in_flight and iteration == die_at):
            megatron.checkpoint().wait("committed")  # the steps are so short that saves would be skipped
        if iteration == storage_at:
            megatron.save_checkpoint(iteration, *job.state, iteration * 1000, to_storage=True)
            megatron.checkpoint().wait("drained")
        if iteration == die_at:
            dist.barrier()
            die()
    restored = megatron.checkpoint().restored
    sources = restored and {name: getattr(restored, name)
                            for name in ("bytes_local", "bytes_twin", "bytes_peer", "bytes_storage")}
    digest = job.digest()
    megatron.finalize_easyckpt()
    return [resumed, flops_then, sources, dict(enumerate(job.losses, resumed + 1)), digest]
