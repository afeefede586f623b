# SPDX-License-Identifier: Apache-2.0
"""Ranks whose lines of SMP, of torch.distributed.checkpoint and of HyperPod name a place in a bucket. harness.run has
called init_process_group if there are several."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

import tierckpt
import tierckpt.dcp as dcp
import tierckpt.sagemaker as sm
from harness import die
from tierckpt.hyperpod import SageMakerCheckpointConfig, SageMakerTieredStorageReader, SageMakerTieredStorageWriter


def local(rank, world, url, steps, die_at=None):
    """The document's lines for S3: each rank has a key for its shard, which every save takes. Returns the step that was
    found, whether memory had it, and the state at the end."""
    checkpoint_id = f"{url}/tp0_ep0_fsdp{rank}"
    state_dict = {"model": {"w": torch.full((1000,), float(rank))}, "step": 0}
    found = sm.newest(state_dict, checkpoint_id=checkpoint_id)
    if found is not None:
        sm.load(state_dict, checkpoint_id=checkpoint_id)
    for step in range(state_dict["step"] + 1, steps + 1):
        state_dict["model"]["w"] += step
        state_dict["step"] = step
        sm.maybe_finalize_async_calls(blocking=True)
        sm.async_save(state_dict, checkpoint_id=checkpoint_id)
        if step == die_at:
            sm.maybe_finalize_async_calls(blocking=True)
            dist.barrier()
            die()
    sm.close(job_done=False)
    return found, state_dict["step"], state_dict["model"]["w"].unique().tolist()


def sharded(rank, world, begin):
    values = begin + torch.arange(24, dtype=torch.float32)
    if world > 1:
        return {"w": distribute_tensor(values, init_device_mesh("cpu", (world,)), [Shard(0)])}
    return {"w": values}


def whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).tolist()


def save_steps(rank, world, url, steps):
    for step in steps:
        dcp.save(sharded(rank, world, 100 * step), checkpoint_id=f"{url}/step-{step}")
    dcp.close()


def load_steps(rank, world, url, steps):
    """The first element of each of them, None of one that was not saved."""
    found = []
    for step in steps:
        state_dict = sharded(rank, world, 0)
        try:
            dcp.load(state_dict, checkpoint_id=f"{url}/step-{step}")
            found.append(whole(state_dict["w"])[0])
            assert whole(state_dict["w"]) == [found[-1] + i for i in range(24)]
        except tierckpt.NotFoundError:
            found.append(None)
    dcp.close()
    return found


def hyperpod(rank, world, url, begin, steps):
    """Returns the step that was loaded."""
    config = SageMakerCheckpointConfig(namespace="run", world_size=world, s3_tier_base_path=url)
    state_dict = {**sharded(rank, world, begin), "step": 0}
    if begin > 0:
        dcp.load(state_dict, storage_reader=SageMakerTieredStorageReader(config))
        assert whole(state_dict["w"]) == [float(i) for i in range(24)]
    loaded = state_dict["step"]
    for step in range(begin + 1, steps + 1):
        config.save_to_s3 = step % 2 == 0
        dcp.save({**state_dict, "step": step}, storage_writer=SageMakerTieredStorageWriter(config, step=step))
    dcp.close(job_done=False)
    return loaded
