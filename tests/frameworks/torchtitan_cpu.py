# SPDX-License-Identifier: Apache-2.0
"""Patches that torchtitan 0.3 needs to train on CPUs with gloo, for tests only. Import it before torchtitan."""

import os
import sys
import time
import types

import torch
import torch.distributed

os.environ["TORCHDYNAMO_DISABLE"] = "1"


class _NoKernels(types.ModuleType):
    """Replaces kernels for accelerators, which are imported although they are never called."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_named: None


def _patch():
    kernels = "torchtitan.distributed.minimal_async_ep.kernels"
    sys.modules[kernels] = _NoKernels(kernels)
    sys.modules[kernels].__file__ = __file__
    if not hasattr(torch.distributed, "set_timeout"):  # only in later versions of PyTorch
        torch.distributed.set_timeout = lambda *_args, **_named: None
    torch._utils._get_available_device_type = lambda: "cpu"
    statistics = dict.fromkeys(("active_bytes.all.peak", "reserved_bytes.all.peak", "num_alloc_retries", "num_ooms"), 0)
    functions = {
        "set_device": lambda _device: None, "device_count": lambda: 1, "empty_cache": lambda: None,
        "reset_peak_memory_stats": lambda *_args: None, "current_device": lambda: 0,
        "get_device_name": lambda _device=None: "cpu", "memory_stats": lambda _device=None: statistics,
        "get_device_properties": lambda _device=None: types.SimpleNamespace(total_memory=1 << 34, name="cpu"),
    }
    for name, function in functions.items():
        setattr(torch.cpu, name, function)


_patch()


def use_plain_attention():
    """Uses scaled dot products instead of flex attention, which needs a compiler."""
    import torchtitan.models.common.config_utils as config_utils
    import torchtitan.models.llama3 as llama3
    from torch.nn.attention import SDPBackend
    from torchtitan.models.common.attention import ScaledDotProductAttention

    config_utils.get_attention_config = lambda backend: ScaledDotProductAttention.Config()
    llama3.get_attention_config = config_utils.get_attention_config
    ScaledDotProductAttention.sdpa_backends = [SDPBackend.MATH]


def wait_for_nobody():
    """Removes the sleep of the trainer's first rank at the end."""
    import torchtitan.trainer

    torchtitan.trainer.time = types.SimpleNamespace(**{**vars(time), "sleep": lambda _seconds: None})


def sum_in_fsdp(model_parts):
    """Gloo has no scaled sum, which FSDP uses by default."""
    from torch.distributed.fsdp import FSDPModule

    for part in model_parts:
        for module in part.modules():
            if isinstance(module, FSDPModule):
                module.set_force_sum_reduction_for_comms(True)


def take_microbatches(schedule):
    """torchtitan 0.3 splits the batch itself, for a later PyTorch. With this one, a pipeline's step would split it
    again."""
    stages = getattr(schedule, "_stages", None) or [schedule._stage]

    def step(*, arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, loss_kwargs):
        for stage in stages:
            stage.has_backward = schedule._has_backward
            stage.clear_runtime_states()
        schedule._step_microbatches(arg_mbs, kwarg_mbs, target_mbs, losses, return_outputs, loss_kwargs=loss_kwargs)

    schedule.step = step
