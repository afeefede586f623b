# SPDX-License-Identifier: Apache-2.0
"""A training with the lines of "Set up managed tiered checkpointing", in SageMaker's guide for HyperPod, on CPUs.

harness.run has called init_process_group. The document's configuration has an S3 path; here a directory takes its
place, and the tests of storage at s3:// have the path."""

import hashlib
import os
from functools import partial

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint import async_save, load, save
from torch.nn.parallel import DistributedDataParallel as DDP

import tierckpt
import tierckpt.dcp
from amzn_sagemaker_checkpointing.checkpointing.filesystem.filesystem import (
    SageMakerTieredStorageReader,
    SageMakerTieredStorageWriter,
)
from amzn_sagemaker_checkpointing.config.sagemaker_checkpoint_config import SageMakerCheckpointConfig
from harness import die
from observers import Heard
from tierckpt.adapters import dcp_functions


def _configuration(directory, **keys):
    return SageMakerCheckpointConfig(
        **{"namespace": os.environ.get("TRAINING_JOB_NAME", "run"), "world_size": dist.get_world_size(),
           "disk_tier_base_path": directory, **keys})


class Training:
    def __init__(self, seed=1):
        torch.manual_seed(seed)
        self.model = DDP(nn.Linear(20, 10))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def step(self, number):
        generator = torch.Generator().manual_seed(number)
        self.optimizer.zero_grad()
        self.model(torch.rand(4, 20, generator=generator)).sum().backward()
        self.optimizer.step()

    def state_dict(self, training_step):
        return {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": training_step}

    def digest(self):
        total = hashlib.sha256()
        for tensor in (*self.model.state_dict().values(), *self.optimizer.state_dict()["state"][0].values()):
            total.update(tensor.contiguous().numpy().tobytes())
        return total.hexdigest()


def train(rank, world, directory, begin=0, steps=6, disk_every=3, die_at=None, functions="torch"):
    """Steps begin to steps - 1, each saved. Unless it begins with 0, it loads the newest first. Returns the digest,
    what was loaded, and the versions on storage."""
    checkpoint_config, training, loaded, future = _configuration(directory), Training(), None, None
    apart = dist.new_group(backend="gloo")  # with NCCL, which the document has, torch's threads are apart from training
    dcp = {"torch": (partial(async_save, process_group=apart), load),
           "tierckpt": (tierckpt.dcp.async_save, tierckpt.dcp.load)}[functions]
    if begin > 0:
        training.step(99)  # makes the optimizer's state
        state_dict = training.state_dict(0)
        storage_reader = SageMakerTieredStorageReader(checkpoint_config=checkpoint_config)
        dcp[1](state_dict, storage_reader=storage_reader)
        training.model.load_state_dict(state_dict["model"])
        training.optimizer.load_state_dict(state_dict["optimizer"])
        loaded = [state_dict["step"], _bytes_from_memory()]
    for training_step in range(begin, steps):
        training.step(training_step)
        checkpoint_config.save_to_s3 = training_step % disk_every == 0
        storage_writer = SageMakerTieredStorageWriter(checkpoint_config=checkpoint_config, step=training_step)
        if future is not None:
            future.result()
        future = dcp[0](state_dict=training.state_dict(training_step), storage_writer=storage_writer)
        if training_step == die_at:
            future.result()
            dist.barrier()
            die()
    if future is not None:
        future.result()
    namespace = os.path.join(directory, checkpoint_config.namespace)
    return training.digest(), loaded, sorted(name.split(".")[0] for name in os.listdir(namespace) if name[0] == "v")


def _bytes_from_memory():
    return sum(series.tiers.attached and series.tiers.restored is not None and series.tiers.restored.bytes_local > 0
               for series in dcp_functions.program._series.values())


def by_path(rank, world, directory):
    """Saves with `save` and a path; returns what a load of an older step finds, and of one that is not there."""
    checkpoint_config, training = _configuration(directory, save_to_disk=True), Training()
    for number in (1, 2):
        training.step(number)
        save(training.state_dict(number),
             storage_writer=SageMakerTieredStorageWriter(checkpoint_config, path=f"anywhere/step_{number}/x"))
    found = []
    for step in (1, 2, 7, 0):
        state_dict = training.state_dict(-1)
        try:
            load(state_dict, storage_reader=SageMakerTieredStorageReader(checkpoint_config, step=step))
            found.append(state_dict["step"])
        except BaseException as e:
            found.append(str(e))
    return found


def wrong(rank, world, directory):
    """Texts of errors, and the warning about step 0."""
    heard, training, texts = Heard(), Training(), []

    def attempt(**keys):
        try:
            save(training.state_dict(1), storage_writer=SageMakerTieredStorageWriter(_configuration(**keys), step=1))
        except (tierckpt.Error, dist.checkpoint.api.CheckpointException) as error:
            texts.append(str(error))

    attempt(directory="", namespace="without")
    attempt(directory=directory, namespace="a/b")
    attempt(directory=directory, namespace="larger", world_size=world + 1)
    attempt(directory=directory, namespace=f"job-{rank}")
    try:
        SageMakerTieredStorageWriter(_configuration(directory), path="anywhere")
    except tierckpt.Error as error:
        texts.append(str(error))
    save(training.state_dict(0), storage_writer=SageMakerTieredStorageWriter(_configuration(directory), step=0))
    return texts, [line for line in heard.lines if "step 0" in line]
