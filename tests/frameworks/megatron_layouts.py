# SPDX-License-Identifier: Apache-2.0
"""The functions that test_megatron_layouts.py runs on ranks, and the whole model as one rank would have it: put
together by hand, from what is known about Megatron's layers, and not by what the adapter uses."""

import hashlib
import json
import logging
import re
from pathlib import Path

import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.dist_checkpointing.mapping import ShardedTensor, ShardedTensorFactory
from megatron.core.models.gpt.gpt_model import GPTModel

import megatron_use
import moved
import tierckpt
from harness import die
from megatron_training import VOCABULARY
from tierckpt import megatron
from tierckpt.adapters.megatron import easyckpt, saved_tensors, sharded_model

SPLIT_BY_ROWS = ("word_embeddings.weight", "output_layer.weight", "linear_qkv.weight", "linear_qkv.bias",
                 "linear_fc1.weight", "linear_fc1.bias")
SPLIT_BY_COLUMNS = ("linear_proj.weight", "linear_fc2.weight")


saved_tensors._READ_BYTES = 200  # tensors are so small here that each would be read at once


def _bare(chunk):
    while not hasattr(chunk, "decoder"):
        chunk = chunk.module
    return chunk


def _names(job):
    """The name in the whole model of each parameter of this rank."""
    for chunk in map(_bare, job.model):
        for name, parameter in chunk.named_parameters():
            layer = re.match(r"decoder\.layers\.(\d+)\.", name)
            if layer:
                number = chunk.decoder.layers[int(layer[1])].layer_number - 1
                name = f"decoder.layers.{number}." + name[layer.end():]
            expert = re.search(r"local_experts\.(\d+)\.", name)
            if expert:
                each = job.kind.experts // job.kind.ep
                number = parallel_state.get_expert_model_parallel_rank() * each + int(expert[1])
                name = name.replace(expert[0], f"expert{number}.")
            if job.kind.tied and name == "output_layer.weight":
                name = "embedding.word_embeddings.weight"
            yield name, parameter


def _trained(job):
    """(parameter, first element, tensor, state) of what each optimizer trains."""
    for part in job.optimizer.chained_optimizers:
        inner = part.optimizer
        if hasattr(part, "model_param_group_index_map"):
            for parameter, (group, order) in part.model_param_group_index_map.items():
                piece = inner.param_groups[group]["params"][order]
                yield parameter, part._get_model_param_range_map(parameter)["param"].start, piece, inner.state[piece]
            continue
        masters = {}
        for parameters, of_these in zip(getattr(part, "float16_groups", ()),
                                        getattr(part, "fp32_from_float16_groups", ()), strict=True):
            masters.update({id(master): parameter for parameter, master in zip(parameters, of_these, strict=True)})
        for group in inner.param_groups:
            for tensor in group["params"]:
                yield masters.get(id(tensor), tensor), 0, tensor, inner.state[tensor]


def _fragments(job):
    """(name, what, place in tensor parallelism, shape of the local parameter, first element, elements)"""
    names = {id(parameter): name for name, parameter in _names(job)}

    def fragment(parameter, what, start, tensor):
        place = parallel_state.get_expert_tensor_parallel_rank() if ".expert" in names[id(parameter)] \
            else parallel_state.get_tensor_model_parallel_rank()
        return (names[id(parameter)], what, place, tuple(parameter.shape), start, tensor.detach().reshape(-1).clone())

    for chunk in map(_bare, job.model):
        yield from (fragment(parameter, "weight", 0, parameter) for parameter in chunk.parameters())
    for parameter, start, tensor, state in _trained(job):
        yield fragment(parameter, "master", start, tensor)
        yield fragment(parameter, "step", 0, state["step"].expand(parameter.numel()).to(torch.float32))
        for what in ("exp_avg", "exp_avg_sq"):
            yield fragment(parameter, what, start, state[what])


def _joined(name, parts, gated):
    parts = [parts[place] for place in sorted(parts)]
    if name.endswith(SPLIT_BY_COLUMNS):
        return torch.cat(parts, 1)
    if not name.endswith(SPLIT_BY_ROWS):
        assert all(torch.equal(part, parts[0]) for part in parts), name
        return parts[0]
    if "linear_fc1" in name and gated:
        halves = [part.chunk(2) for part in parts]
        return torch.cat([half[0] for half in halves] + [half[1] for half in halves])
    whole = torch.cat(parts)
    return whole if "linear" in name else whole[:VOCABULARY]  # what follows is padding


def whole(job):
    """A digest of each tensor of the whole model, and of its optimizer state. Collective."""
    job.settle()
    found = list(_fragments(job))
    everywhere = [found]
    if dist.get_world_size() > 1:
        everywhere = [None] * dist.get_world_size()
        dist.all_gather_object(everywhere, found)
    locals_, filled = {}, {}
    for name, what, place, shape, start, flat in (one for of_rank in everywhere for one in of_rank):
        parts = locals_.setdefault((name, what), {})
        if place not in parts:
            parts[place] = torch.zeros(shape, dtype=flat.dtype)
            filled[name, what, place] = torch.zeros(shape, dtype=torch.bool)
        known, into = filled[name, what, place].view(-1), parts[place].view(-1)
        there, end = known[start:start + len(flat)].clone(), start + len(flat)
        assert torch.equal(into[start:end][there], flat[there]), f"{what} of {name} differs between ranks"
        into[start:end], known[start:end] = flat, True
    assert all(known.all() for known in filled.values())
    gated = job.kind.model.get("gated_linear_unit", False)
    return {f"{what} of {name}": _digest(_joined(name, parts, gated)) for (name, what), parts in locals_.items()}


def _digest(tensor):
    data = tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()
    return f"{tensor.dtype} {tuple(tensor.shape)} {hashlib.sha256(data).hexdigest()[:16]}"


def _start(rank, world, kind, config):
    if world == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    return megatron_use._started(rank, config, kind)


def save(rank, world, kind, config, path):
    """Takes three steps, publishes the third, writes the digests of the whole model to `path`, and dies."""
    job = _start(rank, world, kind, config)
    iteration, _ = megatron.load_checkpoint(*job.state)
    for number in range(iteration + 1, iteration + 4):
        job.step(number)
    megatron.save_checkpoint(iteration + 3, *job.state, 3000, to_storage=True)
    megatron.checkpoint().wait("drained")
    digests = whole(job)
    if rank == 0:
        Path(path).write_text(json.dumps([iteration + 3, digests]))
    if world > 1:
        dist.barrier()
    die()


def load(rank, world, kind, config, goes_on=True, job=None):
    """Returns what was loaded: [iteration, flops], the digests, and how often the first layer norm has run. Then takes
    a step and saves it."""
    job = job or _start(rank, world, kind, config)
    resumed = megatron.load_checkpoint(*job.state, concat=True)
    digests = whole(job)
    passes = sorted({layer.input_layernorm.passes for chunk in map(_bare, job.model) for layer in chunk.decoder.layers})
    if goes_on:
        job.step(resumed[0] + 1)
        megatron.save_checkpoint(resumed[0] + 1, *job.state)
        megatron.checkpoint().wait("committed")
    megatron.finalize_easyckpt()
    return [*resumed], digests, passes


def _held(job):
    """The tensors in which Megatron keeps weights, masters and moments."""
    inner = [part.optimizer for part in job.optimizer.chained_optimizers]
    buffers = [buffer for chunk in job.model for buffer in (*chunk.buffers, *chunk.expert_parallel_buffers)]
    gathered = [one.param_data for buffer in buffers for one in (buffer, *buffer.buckets)]
    return [*moved.of(map(_bare, job.model), inner), *(data for data in gathered if data is not None)]


def load_onto_device(rank, world, kind, config, **how):
    """Loads onto a stand-in for a device and takes a step. Returns the same as load, and how it was read."""
    job = _start(rank, world, kind, config)
    seen = moved.WhileRead(lambda: _held(job), **how)
    return [*load(rank, world, kind, config, job=job), seen.report()]


# ---- state of places, and what cannot be described


class _Heard(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def _generators():
    states = {"torch": torch.get_rng_state(), **tensor_parallel.get_cuda_rng_tracker().get_states()}
    return {name: hashlib.sha256(state.numpy().tobytes()).hexdigest()[:16] for name, state in states.items()}


def save_and_say(rank, world, kind, config, flaw=None):
    """Takes three steps, publishes the third, and returns the states of the generators."""
    if flaw is not None:
        globals()[flaw]()
    job = _start(rank, world, kind, config)
    megatron.load_checkpoint(*job.state)
    for number in (1, 2, 3):
        job.step(number)
    megatron.save_checkpoint(3, *job.state, to_storage=True)
    megatron.checkpoint().wait("drained")
    generators = _generators()
    megatron.finalize_easyckpt()
    return generators


def load_and_say(rank, world, kind, config, flaw=None):
    """Returns the states of the generators, the warnings, and how many elements of padding are not zero; or the error.
    """
    if flaw is not None:
        globals()[flaw]()
    heard = _Heard()
    logging.getLogger("tierckpt").addHandler(heard)
    job = _start(rank, world, kind, config)
    try:
        megatron.load_checkpoint(*job.state, concat=True)
    except tierckpt.Error as error:
        return str(error)
    megatron.rewind_generators()
    rows = parallel_state.get_tensor_model_parallel_rank() * (job.kind.vocabulary // job.kind.tp)
    padding = [tensor[max(0, VOCABULARY - rows):] for chunk in job.model for name, tensor in chunk.named_parameters()
               if name.endswith(("word_embeddings.weight", "output_layer.weight"))]
    left = sum(int(part.count_nonzero()) for part in padding)
    return _generators(), [text for text in heard.texts if "concat=True allows" not in text], left


def no_description():
    """Saves as before there were descriptions."""
    take = easyckpt._Progress._take
    easyckpt._Progress._take = lambda progress: {key: value for key, value in take(progress).items() if key != "parts"}


def failing_description():
    def sharded_state_dict(model, *arguments, **keywords):
        raise AssertionError("this model has no sharded state dict")

    GPTModel.sharded_state_dict = sharded_state_dict


def incomplete_description():
    whole_description = GPTModel.sharded_state_dict

    def sharded_state_dict(model, *arguments, **keywords):
        made = whole_description(model, *arguments, **keywords)
        return {name: value for name, value in made.items() if "final_layernorm" not in name}

    GPTModel.sharded_state_dict = sharded_state_dict


def describe_transposed(rank, world):
    """A parameter of two experts that a module splits, transposes and copies before they become parts of a global
    tensor. Returns whether each element is where the module has put it."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel()
    weight = torch.arange(24.0).view(3, 8)  # two experts with two halves of two columns

    def parts(key, tensor, replica_id, flattened_range):
        halves = tensor.view(2, 3, 4).transpose(-1, -2).chunk(2, -2)
        return [ShardedTensor.from_rank_offsets(key, half.contiguous(), (1, number, 2), replica_id=replica_id)
                for number, half in enumerate(halves)]

    class Experts(torch.nn.Module):
        def sharded_state_dict(self, metadata):
            return {"weight": ShardedTensorFactory("experts.weight", weight, parts, torch.cat)}

    made = sharded_model.describe({"": Experts()}, {"w": weight}, {})
    expected = torch.cat([half.data for half in parts("", weight, 0, None)], 1)
    found = torch.zeros_like(expected)
    for part in made.tensors["w"].parts:
        box = tuple(slice(at, at + size) for at, size in zip(part.offset, part.sizes, strict=True))
        found[box] = weight.reshape(-1).as_strided(part.sizes, part.strides, part.start)
    return torch.equal(found, expected)
