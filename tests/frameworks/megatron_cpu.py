# SPDX-License-Identifier: Apache-2.0
"""Lets megatron-core train on a CPU over gloo, for tests only: implements the minimum that its calls of torch.cuda
require."""

import contextlib
import copy

import torch
import torch.distributed.optim  # compiles its own functions, which require an unpatched torch  # noqa: F401

_MAKERS = ("tensor", "zeros", "ones", "empty", "full", "arange", "zeros_like", "empty_like", "rand",
          "randn")


def patch():
    """To be called before the first use of megatron-core in this process."""
    torch.cuda.current_device = lambda: torch.device("cpu")
    _patch_generators()
    _patch_makers()
    _patch_type_names()
    _patch_streams()
    _patch_norm()
    import megatron.core.transformer.moe.moe_utils as moe

    moe.te_general_gemm = getattr(moe, "te_general_gemm", None)  # a name that is missing without Transformer Engine


def _patch_generators():
    import megatron.core.tensor_parallel.random as tracker

    torch.cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    torch.cuda.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    torch.cuda.manual_seed = torch.default_generator.manual_seed
    tracker._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    tracker._set_cuda_rng_state = lambda state, *_, **__: torch.set_rng_state(state)


def _patch_makers():
    """Makes torch.zeros(..., device="cuda") return a CPU tensor. The device of a stand-in (moved.py) has a number."""
    def on_cpu(make):
        def made(*arguments, **keywords):
            device = keywords.get("device")
            if "cuda" in str(device) and device != torch.device("cuda", 0):
                keywords["device"] = "cpu"
            return make(*arguments, **keywords)

        return made

    for name in _MAKERS:
        setattr(torch, name, on_cpu(getattr(torch, name)))
    torch.Tensor.cuda = lambda tensor, *_, **__: tensor


def _patch_norm():
    """Lets the layer norm of torch work on a part of the sequence, which the mixture of experts requires with tensor
    parallelism. Only the gradients of its parameters have to be summed, which Megatron does for marked ones."""
    from megatron.core.transformer.torch_norm import WrappedTorchNorm

    original = WrappedTorchNorm.__new__

    def made(cls, config, *arguments, **keywords):
        alone = copy.copy(config)
        alone.sequence_parallel = False
        norm = original(cls, alone, *arguments, **keywords)
        for parameter in norm.parameters():
            parameter.sequence_parallel = config.sequence_parallel
        return norm

    WrappedTorchNorm.__new__ = made


def _patch_type_names():
    """Megatron's optimizers know parameters by the names of CUDA types."""
    original = torch.Tensor.type

    def type_name(tensor, *arguments, **keywords):
        answer = original(tensor, *arguments, **keywords)
        return answer.replace("torch.", "torch.cuda.") if not arguments and not keywords else answer

    torch.Tensor.type = type_name


class _Stream:
    """A stream or event on which everything has already happened."""

    def __init__(self, *_, **__):
        pass

    def __getattr__(self, _name):
        return lambda *_, **__: None


def _patch_streams():
    """Used by pipelines."""
    torch.cuda.Stream = torch.cuda.Event = _Stream
    torch.cuda.current_stream = _Stream
    torch.cuda.stream = lambda *_, **__: contextlib.nullcontext()
    torch.cuda.synchronize = lambda *_, **__: None
