# SPDX-License-Identifier: Apache-2.0
"""What test_megatron.py lets ranks do beside training on and on."""

import contextlib
import io
import logging
import runpy
import sys

import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel
from megatron_training import Training

import tierckpt
from tierckpt import megatron


def _started(rank, config, kind="plain", **model):
    job = Training(rank, kind, **model)
    megatron.initialize_easyckpt(**config)
    return job


def _error(function):
    try:
        function()
    except tierckpt.Error as error:
        return str(error)
    return "no error"


def load_at_first_start(rank, world, config):
    return megatron.load_checkpoint(*_started(rank, config).state)


def load_back(rank, world, kind, config):
    job = _started(rank, config, kind)
    for iteration in (1, 2, 3):
        job.step(iteration)
    megatron.save_checkpoint(3, *job.state, 3000)
    megatron.checkpoint().wait("committed")
    saved = job.digest()
    job.step(4)
    iteration, flops = megatron.load_checkpoint(*job.state, load_arg="load", strict=True, concat=False,
                                                checkpointing_context={})
    equal = job.digest() == saved and flops == 3000
    megatron.finalize_easyckpt()
    return iteration, equal


def run_example(rank, world, path, arguments):
    """What it prints."""
    sys.argv = [path, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(path, run_name="__main__")
    return printed.getvalue()


def save_twice(rank, world, config):
    job = _started(rank, config)
    job.step(1)
    return [megatron.save_checkpoint_if_needed(1, *job.state) for _ in range(2)]


def save_before_initialize(rank, world, config):
    job = Training(rank, "plain")
    return _error(lambda: megatron.save_checkpoint_if_needed(1, *job.state))


def initialize_twice(rank, world, config):
    job = _started(rank, config)
    megatron.load_checkpoint(*job.state)
    return _error(lambda: megatron.initialize_easyckpt(**config))


def other_optimizer(rank, world, config):
    job = _started(rank, config)
    megatron.load_checkpoint(*job.state)
    return _error(lambda: megatron.save_checkpoint_if_needed(1, job.model, object(), job.scheduler))


def unknown_optimizer(rank, world, config):
    class Unknown:
        def __init__(self, part):
            self.optimizer = part.optimizer

    job = _started(rank, config)
    job.optimizer.chained_optimizers[0] = Unknown(job.optimizer.chained_optimizers[0])
    return _error(lambda: megatron.load_checkpoint(*job.state))


def _saved_before(rank, config):
    job = _started(rank, config)
    megatron.save_checkpoint(1, *job.state)
    megatron.checkpoint().wait("committed")
    megatron.finalize_easyckpt(job_done=False)
    from megatron.core import parallel_state

    parallel_state.destroy_model_parallel()


def other_heads(rank, world, config):
    _saved_before(rank, config)
    job = _started(rank, config, num_attention_heads=4)
    return _error(lambda: megatron.load_checkpoint(*job.state))


def other_layers(rank, world, config):
    _saved_before(rank, config)
    job = _started(rank, config, num_layers=1)
    return _error(lambda: megatron.load_checkpoint(*job.state))


def different_twins(rank, world, config):
    job = _started(rank, config)
    with torch.no_grad():
        next(job.model[0].parameters()).add_(rank)
    return _error(lambda: megatron.load_checkpoint(*job.state))


def unknown_key(rank, world, config):
    megatron.initialize_easyckpt(save_mem_intervall=3, **config)
    job = Training(rank, "plain")
    return _error(lambda: megatron.load_checkpoint(*job.state))


# ---- unknown versions


class _Warnings(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []

    def emit(self, record):
        self.texts.append(record.getMessage())


def _use_when_off(job):
    heard = _Warnings()
    logging.getLogger("tierckpt").addHandler(heard)
    resumed = megatron.load_checkpoint(*job.state)
    job.step(1)
    started = megatron.save_checkpoint_if_needed(1, *job.state)
    megatron.finalize_easyckpt()
    dist.barrier()
    return resumed, started, heard.texts


def unknown_signature(rank, world, config):
    job = _started(rank, config, "distributed")
    known = DistributedDataParallel.start_param_sync
    DistributedDataParallel.start_param_sync = lambda self: known(self)
    return _use_when_off(job)


def unknown_attributes(rank, world, config):
    job = _started(rank, config, "distributed")
    del job.optimizer.chained_optimizers[0].model_param_group_index_map  # a step needs it not
    return _use_when_off(job)
