# SPDX-License-Identifier: Apache-2.0
"""Trainings with the lines of SMP's document "Checkpointing using SMP" on CPUs, in save_* and load_*. Two of them
differ because torch's functions have changed since: see load_sharded.

harness.run has called init_process_group. FullyShardedDataParallel takes a CPU only by device_id, and full state dicts
only without offload_to_cpu."""

import smp_names  # noqa: F401

import functools
import hashlib
import json
import logging
import os

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.sagemaker as tsm
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullStateDictConfig, ShardingStrategy, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.sagemaker import state
from torch.sagemaker.distributed.checkpoint.filesystem import (
    DistributedFileSystemReader,
    DistributedFileSystemWriter,
)
from torch.sagemaker.distributed.checkpoint.state_dict_loader import load
from torch.sagemaker.distributed.checkpoint.state_dict_saver import (
    async_save,
    maybe_finalize_async_calls,
    save,
)
from torch.sagemaker.distributed.checkpoint.state_dict_utils import (
    SMStateDictType,
    init_optim_state,
    sm_state_dict_type,
)
from torch.sagemaker.utils.process_group_utils import get_global_ranks

import harness
import tierckpt
from tierckpt.adapters import dcp_functions
from tierckpt.sagemaker import load_sharded_optimizer_state_dict  # instead of torch.distributed.checkpoint.optimizer

logger = logging.getLogger(__name__)
save_dir = load_dir = "checkpoints"


def save_local(model, optimizer, step):
    global_rank = dist.get_rank()
    sub_dir = f"tp{state.tp_rank}_ep{state.ep_rank}_fsdp{model.rank}"
    # 1. Get replication ranks and group
    current_replication_group = None
    current_replication_ranks = None
    for replication_ranks in state.ranker.get_rep_groups():
        rep_group = dist.new_group(replication_ranks)
        if global_rank in replication_ranks:
            current_replication_group = rep_group
            current_replication_ranks = replication_ranks
    coordinator_rank = min(current_replication_ranks)
    # 2. Wait for the previous checkpointing done
    maybe_finalize_async_calls(
        blocking=True, process_group=current_replication_group
    )
    # 3. Get model local checkpoint
    with sm_state_dict_type(model, SMStateDictType.SM_LOCAL_STATE_DICT):
        state_dict = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            # Potentially add more customized state dicts.
            "step": step,
        }
    # 4. Save a local checkpoint
    async_save(
        state_dict,
        checkpoint_id=os.path.join(save_dir, sub_dir),
        process_group=current_replication_group,
        coordinator_rank=coordinator_rank,
    )


def load_local(model, optimizer):
    sub_dir = f"tp{state.tp_rank}_ep{state.ep_rank}_fsdp{model.rank}"
    global_rank = dist.get_rank()
    checkpoint_id = os.path.join(load_dir, sub_dir)
    storage_reader = DistributedFileSystemReader(checkpoint_id)
    # 1. Get replication ranks and group
    current_replication_group = None
    current_replication_ranks = None
    for replication_ranks in state.ranker.get_rep_groups():
        rep_group = dist.new_group(replication_ranks)
        if global_rank in replication_ranks:
            current_replication_group = rep_group
            current_replication_ranks = replication_ranks
    coordinator_rank = min(current_replication_ranks)
    # 2. Create local state_dict
    with sm_state_dict_type(model, SMStateDictType.SM_LOCAL_STATE_DICT):
        state_dict = {
            "model": model.state_dict(),
            # Potentially add more customized state dicts.
            "step": 0,
        }
        # Init optimizer state_dict states by setting zero grads and step.
        init_optim_state(optimizer, skip_empty_param=True)
        state_dict["optimizer"] = optimizer.state_dict()
    # 3. Load a checkpoint
    load(
        state_dict=state_dict,
        process_group=current_replication_group,
        coordinator_rank=coordinator_rank,
        storage_reader=storage_reader,
    )
    return state_dict["step"]


def save_sharded(model, optimizer, step):
    sub_dir = f"tp{state.tp_rank}_ep{state.ep_rank}"
    checkpoint_id = os.path.join(save_dir, sub_dir)
    # To determine whether to take part in checkpointing.
    global_rank = dist.get_rank()
    action_rank = state.ranker.get_rep_rank(global_rank) == 0
    process_group = model.process_group
    coordinator_rank = min(get_global_ranks(process_group))
    # 1. wait for the previous checkpointing done
    maybe_finalize_async_calls(blocking=True, process_group=process_group)
    # 2. retrieve model & optimizer sharded state_dict
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        state_dict = {
            "model": model.state_dict(),
            "optimizer": FSDP.optim_state_dict(model, optimizer),
            # Potentially add more customized state dicts.
            "step": step,
        }
    # 3. save checkpoints asynchronously using async_save
    if action_rank:
        async_save(
            state_dict,
            checkpoint_id=checkpoint_id,
            process_group=process_group,
            coordinator_rank=coordinator_rank,
        )


def load_sharded(model, optimizer):
    sub_dir = f"tp{state.tp_rank}_ep{state.ep_rank}"
    checkpoint_id = os.path.join(load_dir, sub_dir)
    reader = DistributedFileSystemReader(checkpoint_id)
    process_group = model.process_group
    coordinator_rank = min(get_global_ranks(process_group))
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        # 1. Load model and everything else except the optimizer.
        state_dict = {
            "model": model.state_dict(),
            # Potentially more customized state dicts.
            "step": 0,
        }
        load(
            state_dict,
            storage_reader=reader,
            process_group=process_group,
            coordinator_rank=coordinator_rank,
        )
        model.load_state_dict(state_dict["model"])
        # 2. Load optimizer.
        optim_state = load_sharded_optimizer_state_dict(  # torch's own takes no process_group
            model_state_dict=state_dict["model"],
            optimizer_key="optimizer",
            storage_reader=reader,
            process_group=process_group,
        )
        flattened_optimizer_state = FSDP.optim_state_dict_to_load(  # torch now has the dict after the optimizer
            model, optimizer, optim_state["optimizer"], group=model.process_group
        )
        optimizer.load_state_dict(flattened_optimizer_state)
    return state_dict["step"]


def save_full(model, hf_model_config=None):
    # Save checkpoints.
    with FSDP.state_dict_type(
        model,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(
            rank0_only=True, offload_to_cpu=False,  # True on GPUs; on a CPU torch then returns memory that it has freed
            # Default value is to translate back to Hugging Face Transformers format,
            # when saving full checkpoints for models trained with SMP tensor parallelism.
            # translate_on_save=True
        ),
    ):
        state_dict = model.state_dict()
    if dist.get_rank() == 0:
        logger.info("Processed state dict to save. Starting write to disk now.")
        os.makedirs(save_dir, exist_ok=True)
        # This name is needed for HF from_pretrained API to work.
        torch.save(state_dict, os.path.join(save_dir, "pytorch_model.bin"))
        if hf_model_config is not None:
            hf_model_config.save_pretrained(save_dir)
    dist.barrier()


LINES = {"local": (save_local, load_local), "sharded": (save_sharded, load_sharded)}


class Layers(nn.Sequential):
    """Of sizes that two or three ranks cannot share evenly."""

    def __init__(self):
        super().__init__(nn.Linear(7, 13), nn.BatchNorm1d(13), nn.ReLU(), nn.Linear(13, 3))


def made(degree, use_orig_params, model=None, mesh=True):
    """degree: over how many ranks the model is sharded, 0: all. With a mesh its state dict has DTensors."""
    torch.manual_seed(0)
    wrap = functools.partial(FSDP, device_id=torch.device("cpu"), use_orig_params=use_orig_params)
    if degree:
        tsm.init({"hybrid_shard_degree": degree})
        wrap = functools.partial(wrap, sharding_strategy=ShardingStrategy.HYBRID_SHARD,
                                 **(meshed if mesh else grouped)(degree, dist.get_world_size(), dist.get_rank()))
    model = Layers() if model is None else model
    if isinstance(model, Layers):
        model[0] = wrap(model[0])
    model = wrap(model)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def meshed(degree, world, rank):
    return {"device_mesh": init_device_mesh("cpu", (world // degree, degree))}


def grouped(degree, world, rank):
    shards = [dist.new_group(list(range(first, first + degree))) for first in range(0, world, degree)]
    replicas = [dist.new_group(ranks) for ranks in state.ranker.get_rep_groups()]
    return {"process_group": (shards[rank // degree], replicas[rank % degree])}


def train_step(model, optimizer, step):
    torch.manual_seed(step)  # the same data on all ranks
    loss = model(torch.rand(8, 7)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def whole(model, optimizer):
    """A digest of model and optimizer that does not depend on how they are sharded."""
    total = hashlib.sha256()
    moments = FSDP.full_optim_state_dict(model, optimizer, rank0_only=False)["state"]
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        weights = model.state_dict()
    for values in (weights, *(moments[key] for key in sorted(moments))):
        for key in sorted(values):
            total.update(key.encode() + values[key].detach().contiguous().numpy().tobytes())
    return total.hexdigest()


def begun(kind, model, optimizer):
    """The step that was loaded, 0 for a fresh start."""
    try:
        return LINES[kind][1](model, optimizer)
    except tierckpt.NotFoundError:
        return 0


def train(rank, world, directory, kind, degree=0, use_orig_params=True, mesh=True, die_at=None, steps=6):
    """Returns [step begun at, digest then, losses, digest at the end, whether it was loaded from memory]."""
    os.chdir(directory)
    model, optimizer = made(degree, use_orig_params, mesh=mesh)
    first = begun(kind, model, optimizer)
    loaded, memory, losses = whole(model, optimizer) if first else None, from_memory(), []
    for step in range(first + 1, steps + 1):
        losses.append(train_step(model, optimizer, step))
        LINES[kind][0](model, optimizer, step)
        if step == die_at:
            dist.barrier()
            harness.die()
    maybe_finalize_async_calls(blocking=True)
    return [first, loaded, losses, whole(model, optimizer), memory]


def from_memory():
    """Whether the last load was one from the memory of this node."""
    return any(series.tiers.attached and series.tiers.restored is not None and series.tiers.restored.bytes_local > 0
               for series in dcp_functions.program._series.values())


def full(rank, world, directory):
    os.chdir(directory)
    model, optimizer = made(0, True)
    train_step(model, optimizer, 1)
    save_full(model)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        weights = model.state_dict()
    saved = torch.load(os.path.join(save_dir, "pytorch_model.bin"))
    assert saved.keys() == Layers().state_dict().keys()
    assert all(torch.equal(saved[key], value) for key, value in weights.items())


def full_of_transformers(rank, world, directory):
    from transformers import AutoModelForCausalLM, GPT2Config

    os.chdir(directory)
    hf_model_config = GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=32, n_positions=8)
    model, _ = made(0, True, AutoModelForCausalLM.from_config(hf_model_config))
    save_full(model, hf_model_config)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT):
        weights = model.state_dict()
    model = AutoModelForCausalLM.from_pretrained(save_dir)
    assert all(torch.equal(weights[key], value) for key, value in model.state_dict().items())


def local_of(model, optimizer):
    with sm_state_dict_type(model, SMStateDictType.SM_LOCAL_STATE_DICT):
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}


def through_a_copy(rank, world, directory):
    """A local state dict whose tensors are not the model's own is loaded by load_state_dict."""
    os.chdir(directory)
    model, optimizer = made(0, True)
    train_step(model, optimizer, 1)
    digest = whole(model, optimizer)
    model.eval()
    with torch.no_grad():
        model(torch.rand(8, 7))  # leaves the parameters of the root whole
    path = f"{save_dir}/step-5/tp0_ep0_fsdp{model.rank}"
    save(local_of(model, optimizer), storage_writer=DistributedFileSystemWriter(path))
    files = sorted(os.listdir(path))
    other, other_optimizer = made(0, True)
    train_step(other, other_optimizer, 9)
    copy = copied(local_of(other, other_optimizer))
    load(copy, checkpoint_id=path)
    with sm_state_dict_type(other, SMStateDictType.SM_LOCAL_STATE_DICT):
        other.load_state_dict(copy["model"])
    other_optimizer.load_state_dict(copy["optimizer"])
    assert whole(other, other_optimizer) == digest
    return files


def copied(value):
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    return value.clone() if torch.is_tensor(value) else value


def said(call):
    try:
        call()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None


def wrong(rank, world, directory):
    """What the lines that cannot work say."""
    os.chdir(directory)
    model, optimizer = made(0, True)
    train_step(model, optimizer, 1)
    with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
        sharded = {"model": model.state_dict()}
    errors = {"url": said(lambda: async_save(sharded, checkpoint_id="gs://your_bucket/key")),
              "url load": said(lambda: load(sharded, checkpoint_id="gs://your_bucket/key")),
              "region": said(lambda: async_save(sharded, checkpoint_id="a", s3_region="eu-west-1")),
              "transform": said(lambda: tsm.transform(model)),
              "tensor parallel": said(lambda: tsm.init({"tensor_parallel_degree": 2})),
              "offloading": said(lambda: tsm.init({"sm_activation_offloading": True})),
              "unknown": said(lambda: tsm.init({"hybrid_degree": 2})),
              "translate_on_save": said(lambda: FullStateDictConfig(translate_on_save=False)),
              "nothing": said(lambda: load(sharded, checkpoint_id="never"))}
    tsm.init({"hybrid_shard_degree": 1})
    errors["degree"] = said(lambda: load_sharded(model, optimizer))
    errors["replicas"] = said(lambda: save_local(model, optimizer, 1))
    return errors


def replica_saves(rank, world, directory):
    """A replica that was not said to be one."""
    os.chdir(directory)
    model, optimizer = made(2, True)
    train_step(model, optimizer, 1)
    tsm.init({"hybrid_shard_degree": 4})
    return said(lambda: save_sharded(model, optimizer, 1))


def sizes(rank, world, directory):
    """What init says about ranks, from a file and from the launcher."""
    os.chdir(directory)
    if rank == 0:
        with open("smp_config.json", "w") as file:
            json.dump({"hybrid_shard_degree": 2, "random_seed": 12345}, file)
    dist.barrier()
    tsm.init(config="smp_config.json")
    groups = state.ranker.get_rep_groups()
    os.environ["SM_HP_MP_PARAMETERS"] = '{"hybrid_shard_degree": 1}'
    tsm.init({"hybrid_shard_degree": 2})
    return [groups, state.ranker.get_rep_groups(), tsm.state.ranker.get_rep_rank(rank), get_global_ranks(None)]
