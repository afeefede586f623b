# SPDX-License-Identifier: Apache-2.0
"""A training with the objects of megatron-core and the calls that EasyCkpt's document shows, in its order: the load
belongs to the set-up, initialize_easyckpt stands right before the loop, and no call ends it."""

import json
import logging
import os
import sys
import types

import torch.distributed as dist

import harness
from aimaster.python.torch.easyckpt.megatron import initialize_easyckpt, load_checkpoint, save_checkpoint_if_needed
from megatron_training import Training
from tierckpt.adapters.megatron import easyckpt
from tierckpt.megatron import finalize_easyckpt


class _Heard(logging.Handler):
    def __init__(self):
        super().__init__(logging.WARNING)
        self.texts = []
        logging.getLogger("tierckpt").addHandler(self)

    def emit(self, record):
        self.texts.append(record.getMessage())


def _configured(directory, config):
    """In this directory, with a configuration that the environment names."""
    os.chdir(directory)
    with open("tierckpt.json", "w") as file:
        json.dump({key: config[key] for key in ("job", "save_dir", "runtime_dir", "net_address", "net_device", "copies",
                                                "linger_s", "restore_wait_ms", "memory_cap_bytes")}, file)
    os.environ["TIERCKPT_CONFIG"] = os.path.abspath("tierckpt.json")


def train(rank, world, directory, config=None, iterations=9, die_at=None):
    """Returns [first iteration, losses, digest, warnings]."""
    heard = _Heard()
    logging.getLogger("tierckpt").setLevel(logging.INFO)
    job = Training(rank, "bf16")
    model, optimizer, opt_param_scheduler = job.state
    iteration = 0
    if config is not None:
        _configured(directory, config)
        iteration, _ = load_checkpoint(model, optimizer, opt_param_scheduler)
        initialize_easyckpt(save_mem_interval=1, save_storage_interval=5, max_ckpt_num=5, log_file_path='./test.log')
    first = iteration
    while iteration < iterations:
        job.step(iteration + 1)
        iteration += 1
        if config is None:
            continue
        if save_checkpoint_if_needed(iteration, model, optimizer, opt_param_scheduler):
            easyckpt.checkpoint().wait("committed")  # the steps are so short that saves would be skipped
        if iteration == die_at:
            dist.barrier()
            harness.die()
    return [first, job.losses, job.digest(), heard.texts]


def initialize_first(rank, world, directory, config):
    """The log of the agents."""
    job = Training(rank, "plain")
    os.chdir(directory)
    initialize_easyckpt(1, 5, 5, "./test.log", config=config)
    load_checkpoint(*job.state)
    finalize_easyckpt()
    return sorted(os.listdir())


def other_keys_after_the_load(rank, world, directory, config):
    heard = _Heard()
    job = Training(rank, "plain")
    _configured(directory, config)
    load_checkpoint(*job.state)
    initialize_easyckpt(2, copies=2, max_ckpt_num=7, slots=3)  # of slots this is the default
    finalize_easyckpt()
    return heard.texts


def hooked(rank, world, directory, config, iterations, initialize=True, replaced=False):
    """The hook, and in the program's own loop initialize_easyckpt: with a stand-in for Megatron-LM's package."""
    heard = _Heard()
    job = Training(rank, "plain")
    _configured(directory, config)
    args = types.SimpleNamespace(load=None, pretrained_checkpoint=None, moe_use_upcycling=False, iteration=0)
    training = _stand_in(job, args)
    if replaced:  # as in the document, whose training.py imports another load_checkpoint
        training.load_checkpoint, args.load = load_checkpoint, "elsewhere"
    import aimaster.python.torch.easyckpt.megatron.hook  # noqa: F401

    def loop(forward_step_func, model, optimizer, opt_param_scheduler):
        if initialize:
            initialize_easyckpt(save_mem_interval=1, save_storage_interval=5, max_ckpt_num=5)
        for iteration in range(args.iteration + 1, iterations + 1):
            job.step(iteration)
            if initialize and save_checkpoint_if_needed(iteration, model, optimizer, opt_param_scheduler):
                easyckpt.checkpoint().wait("committed")
            training.checkpoint_and_decide_exit(model, optimizer, opt_param_scheduler, iteration, 0, None, None)
        if easyckpt.checkpoint().stats().saves_started:
            easyckpt.checkpoint().wait("committed")
        raise SystemExit  # so that memory is kept for the next start

    training.loop = loop
    state = training.setup_model_and_optimizer(None, None, None)
    first = args.iteration
    try:
        training.train(None, *state)
    except SystemExit:
        pass
    return [first, heard.texts]


def _stand_in(job, args):
    """A megatron.training with functions of the parameters that the hook knows."""
    def setup_model_and_optimizer(model_provider_func, model_type, checkpointing_context):
        if args.load is not None:
            args.iteration, _ = training.load_checkpoint(*job.state)
        return job.state

    def load(ddp_model, optimizer, opt_param_scheduler, load_arg, strict):
        raise AssertionError("there is no checkpoint of Megatron")

    def checkpoint_and_decide_exit(model, optimizer, opt_param_scheduler, iteration,
                                   num_floating_point_operations_so_far, checkpointing_context, train_data_iterator):
        return False

    def train(forward_step_func, model, optimizer, opt_param_scheduler):
        return training.loop(forward_step_func, model, optimizer, opt_param_scheduler)

    package, training = (types.ModuleType(f"megatron.training{end}") for end in ("", ".training"))
    vars(training).update(get_args=lambda: args, setup_model_and_optimizer=setup_model_and_optimizer,
                          load_checkpoint=load, checkpoint_and_decide_exit=checkpoint_and_decide_exit, train=train)
    checkpointing = types.ModuleType("megatron.training.checkpointing")
    variables = types.ModuleType("megatron.training.global_vars")
    checkpointing.load_checkpoint, variables._GLOBAL_ARGS = load, None
    package.training, package.checkpointing, package.global_vars = training, checkpointing, variables
    sys.modules.update({module.__name__: module for module in (package, training, checkpointing, variables)})
    return training
