# SPDX-License-Identifier: Apache-2.0
"""Helpers that the trainings of several frameworks share: they act on a checkpoint and report on it."""

import logging

import torch

import tierckpt


def settle(checkpoint):
    """Waits until the last save is committed. The steps of these trainings are so short that, on a busy machine, the
    agent may not have decided on two saves when a third one begins, which then finds no free slot and is skipped."""
    if checkpoint.stats().saves_started > 0:
        checkpoint.wait("committed")


class Heard(logging.Handler):
    """Collects the log records of Tierckpt."""

    def __init__(self):
        super().__init__()
        self.lines = []
        logger = logging.getLogger("tierckpt")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def emit(self, record):
        self.lines.append(record.getMessage())


class WeightWriter:
    """Writes to a weight while the first save is copied; `given_up` is whether that save was given up."""

    given_up = False

    def before(self, step, checkpoint, model):
        """Called at the beginning of each step; the first step has number 0."""
        watch = checkpoint._client.watch  # no snapshot is confirmed while it is locked
        if step == 0:
            watch._lock.acquire()
        if step == 1:
            with torch.no_grad():
                next(model.parameters()).add_(1)
            watch._lock.release()
            checkpoint.fence()
            try:
                checkpoint.wait("committed", 1)
            except tierckpt.CanceledError:
                self.given_up = watch.gave_up


def draws_as_its_own(rank, config):
    """Whether torch's generator is that of the rank of the same number in the newest published version, or, on a new
    rank, that of none."""
    with tierckpt.open_published(config) as version:
        saved = [version.read(f"rank{number}/rng.torch") for number in range(version.info.world_size)]
    return [torch.equal(torch.get_rng_state(), state) for state in saved] == [rank == i for i in range(len(saved))]
