# SPDX-License-Identifier: Apache-2.0
"""The functions that test_megatron.py runs on ranks, other than continued training."""

import contextlib
import hashlib
import importlib
import io
import logging
import os
import runpy
import sys
import types

import torch
import torch.distributed as dist
from megatron.core.distributed import DistributedDataParallel

import tierckpt
from megatron_training import Training
from tierckpt import megatron
from tierckpt.adapters.megatron import easyckpt
from tierckpt.core.checkpoint import Checkpoint


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


def _weights(job):
    """The weights of the model, which is complete on every data-parallel rank."""
    job.settle()
    total = hashlib.sha256()
    for chunk in job.model:
        for parameter in chunk.parameters():
            total.update(parameter.detach().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def save_for_others(rank, world, kind, config):
    job = _started(rank, config, kind)
    megatron.load_checkpoint(*job.state)
    for iteration in (1, 2, 3, 4):
        job.step(iteration)
    megatron.save_checkpoint(4, *job.state, 4000, to_storage=True)
    megatron.checkpoint().wait("drained")
    megatron.finalize_easyckpt()
    return _weights(job)


def load_of_others(rank, world, kind, config, concat=True):
    """Loads a version that another number of ranks has saved. Returns the result of the load, the weights, the
    differences between the optimizer's state and the published one, and whether training and saving continue."""
    if world == 1:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    job = _started(rank, config, kind)
    iteration, flops = megatron.load_checkpoint(*job.state, concat=concat)
    assert _draws_as_saved(config, rank)
    weights, difference = _weights(job), _difference(config)
    job.step(5)
    megatron.save_checkpoint(5, *job.state)
    megatron.checkpoint().wait("committed")
    megatron.finalize_easyckpt()
    return [iteration, flops], weights, difference, job.scheduler.num_steps


def _draws_as_saved(config, rank):
    """True if the generator draws as on the rank with the same position in the model; with at most two ranks, that is
    the rank number modulo two."""
    megatron.rewind_generators()
    with tierckpt.open_published(config) as version:
        return torch.equal(torch.get_rng_state(), version.read(f"rank{rank % version.info.world_size}/rng.torch"))


def _difference(config):
    records = easyckpt._current_job().attached._mapping.contents.records
    with tierckpt.open_published(config) as version:
        steps = {record.current().item() for record in records if record.key.endswith(".step")}
        assert steps == {4.0}
        lazy = [record for record in records if not record.eager]
        return sum(int((version.read_box(record.key, record.offset, record.current().shape) != record.current()).sum())
                   for record in lazy)


def load_of_others_fails(rank, world, kind, config, concat):
    job = _started(rank, config, kind)
    return _error(lambda: megatron.load_checkpoint(*job.state, concat=concat))


def run_example(rank, world, path, arguments):
    """Returns its output."""
    sys.argv = [path, *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(path, run_name="__main__")
    return printed.getvalue()


def fence_comes_first(rank, world, kind, config):
    """True if data that is copied late is unchanged since the save when the next step first calls the fence, and
    changed after that."""
    seen, fence = [], Checkpoint.fence

    def look(checkpoint):
        seen.append(contents())
        fence(checkpoint)

    Checkpoint.fence = look
    job = _started(rank, config, kind)
    job.step(1)
    megatron.save_checkpoint(1, *job.state)
    records = easyckpt._current_job().attached._mapping.contents.records

    def contents():
        return [record.current().clone() for record in records if not record.eager]

    saved = contents()
    job.step(2)
    equal = [all(map(torch.equal, saved, state)) for state in (seen[0], contents())]
    megatron.finalize_easyckpt()
    return equal


def save_twice(rank, world, config):
    job = _started(rank, config)
    job.step(1)
    return [bool(megatron.save_checkpoint_if_needed(1, *job.state)) for _ in range(2)]


def save_before_initialize(rank, world, config):
    job = Training(rank, "plain")
    return _error(lambda: megatron.save_checkpoint_if_needed(1, *job.state))


def load_unconfigured(rank, world, config):
    job = Training(rank, "plain")
    return _error(lambda: megatron.load_checkpoint(*job.state))


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


def own_format_without_save(rank, world, config):
    job = _started(rank, {**config, "storage_format": "framework"})
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
    return resumed, bool(started), heard.texts


def unknown_signature(rank, world, config):
    job = _started(rank, config, "distributed")
    known = DistributedDataParallel.start_param_sync
    DistributedDataParallel.start_param_sync = lambda self: known(self)
    return _use_when_off(job)


def unknown_attributes(rank, world, config):
    job = _started(rank, config, "distributed")
    del job.optimizer.chained_optimizers[0].model_param_group_index_map  # a step does not need it
    return _use_when_off(job)


# ---- the hook


def _heard_at_import():
    heard = _Warnings()
    logging.getLogger("tierckpt").addHandler(heard)
    hook = importlib.import_module("tierckpt.megatron.hook")
    return hook, heard.texts


def hook_without_training(rank, world):
    hook, heard = _heard_at_import()
    return hook.install(), heard


def hook_switched_off(rank, world):
    os.environ["TIERCKPT_MEGATRON_HOOK"] = "off"
    hook, heard = _heard_at_import()
    return hook.install(), heard


def _stand_in_for_training(missing=""):
    """A stand-in for megatron.training: functions with the known parameters, or without one of them."""
    def function(parameters):
        names = [name for name in parameters.split() if name != missing]
        return eval(f"lambda {', '.join(names)}: None")

    state = "model optimizer opt_param_scheduler"
    functions = {
        "get_args": "", "setup_model_and_optimizer": "model_provider_func model_type checkpointing_context",
        "load_checkpoint": "ddp_model optimizer opt_param_scheduler load_arg strict",
        "checkpoint_and_decide_exit": f"{state} iteration num_floating_point_operations_so_far checkpointing_context "
                                      "train_data_iterator",
        "train": f"forward_step_func {state}"}
    package = types.ModuleType("megatron.training")
    for name in ("training", "checkpointing", "global_vars"):
        module = types.ModuleType(f"megatron.training.{name}")
        vars(module).update({key: function(parameters) for key, parameters in functions.items()}, _GLOBAL_ARGS=None)
        setattr(package, name, module)
        sys.modules[module.__name__] = module
    sys.modules[package.__name__] = package
    return package.training, functions.keys() - {"get_args"}


def hook_twice(rank, world):
    training, names = _stand_in_for_training()
    before = {name: getattr(training, name) for name in names}
    hook, heard = _heard_at_import()
    again = hook.install() and importlib.reload(hook).install()
    return again, heard, all(getattr(training, name).tierckpt_wraps is before[name] for name in names)


def hook_of_unknown_training(rank, world):
    training, names = _stand_in_for_training(missing="iteration")
    hook, heard = _heard_at_import()
    return hook.install(), heard, not any(hasattr(getattr(training, name), "tierckpt_wraps") for name in names)
