# SPDX-License-Identifier: Apache-2.0
"""A small training in which every step depends on everything that a checkpoint must restore."""

import hashlib
import random

import numpy
import torch
from torch.nn.parallel import DistributedDataParallel

import models
import tierckpt
from harness import die
from tierckpt.torch import settle_ddp


class Training:
    def __init__(self, rank, kind):
        self.model, self.optimizer = models.make(kind)
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lambda step: 1 / (1 + step))
        self.position = {"samples": 0, "weights": torch.zeros(2)}
        torch.manual_seed(100 + rank)
        random.seed(200 + rank)
        numpy.random.seed(300 + rank)
        if isinstance(self.model, DistributedDataParallel):
            settle_ddp(self.model, lambda: self._loss().backward())

    def _loss(self):
        return self.model(torch.randn(4, models.WIDTH)).square().mean()

    def step(self):
        loss = self._loss() * (1 + random.random() + numpy.random.rand())
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.scheduler.step()
        self.position["samples"] += 4
        self.position["weights"] += float(loss)
        return float(loss)

    def digest(self):
        """Returns a digest of everything that the next steps depend on."""
        inner = getattr(self.optimizer, "optim", self.optimizer)
        tensors = list(self.model.state_dict().values()) + [self.position["weights"], torch.get_rng_state()]
        for group in inner.param_groups:
            for param in group["params"]:
                tensors += [inner.state[param][key] for key in sorted(inner.state[param])]
        total = hashlib.sha256()
        for tensor in tensors:
            local = tensor.to_local() if hasattr(tensor, "to_local") else tensor
            total.update(local.detach().contiguous().numpy().tobytes())
        rest = (self.position["samples"], self.scheduler.state_dict(), [group["lr"] for group in inner.param_groups],
                random.getstate(), numpy.random.get_state()[1].tobytes())
        total.update(repr(rest).encode())
        return total.hexdigest()


def train(rank, world, kind, steps, config=None, own_nodes=False, die_at=None, storage_at=None, back_to=None):
    """Trains to `steps`, resuming if a version was saved, and with back_to once more from that step. Returns [step
    resumed at, bytes by source, digest]."""
    job = Training(rank, kind)
    if config is None:
        for _ in range(steps):
            job.step()
        return [None, None, job.digest()]
    overrides = {"node": f"node{rank}"} if own_nodes else None
    with tierckpt.init(model=job.model, optimizer=job.optimizer, scheduler=job.scheduler, extra_state=job.position,
                       config=config, overrides=overrides) as checkpoint:
        resumed = checkpoint.load_checkpoint()
        if back_to is not None:
            for step in range((resumed or 0) + 1, steps + 1):
                job.step()
                checkpoint.save_checkpoint(step, to_storage=step == back_to)
                checkpoint.wait("drained" if step == back_to else "committed")
            resumed = checkpoint.load_checkpoint(step=back_to)
        for step in range((resumed or 0) + 1, steps + 1):
            job.step()
            checkpoint.save_checkpoint_if_needed(step)
            if step == storage_at:
                checkpoint.save_checkpoint(step, to_storage=True)
                checkpoint.wait("drained")
            if step == die_at:
                checkpoint.wait("committed")
                if world > 1:
                    torch.distributed.barrier()
                die()
        source = checkpoint.restored and {name: getattr(checkpoint.restored, name) for name in
                                          ("bytes_local", "bytes_twin", "bytes_peer", "bytes_storage")}
        return [resumed, source, job.digest()]
