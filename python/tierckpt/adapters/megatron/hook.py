# SPDX-License-Identifier: Apache-2.0
"""`import tierckpt.megatron.hook` before pretrain() of Megatron-LM (core_v0.16 to core_v0.19): saves to memory and
storage at the configured intervals, and resumes from there.

TIERCKPT_CONFIG in the environment names the configuration, a JSON file; without it versions go below --save.
TIERCKPT_MEGATRON_CONCAT=on lets it start from what was published with other parallel sizes.
TIERCKPT_MEGATRON_HOOK=off switches the hook off.

Four functions of megatron.training.training are wrapped, none replaced: setup_model_and_optimizer and load_checkpoint
load, checkpoint_and_decide_exit saves, train rewinds the generators before it, and leaves after it.
"""

import contextlib
import functools
import importlib
import logging
import os
from collections.abc import Callable
from typing import Any

from ...errors import Error
from ..api_compat import RequiredApi, usable
from ..trained import STORAGE_TIMEOUT_S
from . import easyckpt

log = logging.getLogger("tierckpt")

_TRAINING = "megatron.training.training"
_REQUIRED_API = (
    RequiredApi(f"{_TRAINING}:get_args", ()),
    RequiredApi(f"{_TRAINING}:setup_model_and_optimizer", ("model_type", "checkpointing_context")),
    RequiredApi(f"{_TRAINING}:checkpoint_and_decide_exit", (
        "model", "optimizer", "opt_param_scheduler", "iteration", "num_floating_point_operations_so_far",
        "checkpointing_context", "train_data_iterator")),
    RequiredApi(f"{_TRAINING}:train", ("forward_step_func", "model", "optimizer", "opt_param_scheduler")),
    RequiredApi("megatron.training.checkpointing:load_checkpoint", ("ddp_model", "optimizer", "opt_param_scheduler",
                                                             "load_arg", "strict")),
    RequiredApi("megatron.training.global_vars:_GLOBAL_ARGS"),
)


_SAVE = RequiredApi(f"{_TRAINING}:save_checkpoint_and_time", (
    "iteration", "model", "optimizer", "opt_param_scheduler", "num_floating_point_operations_so_far",
    "checkpointing_context", "train_data_iterator"))
_LOAD = RequiredApi(f"{_TRAINING}:load_checkpoint",
                    ("ddp_model", "optimizer", "opt_param_scheduler", "load_arg", "strict"))


def _loads_by_itself() -> bool:
    """Whether the program has put our load_checkpoint in the place of Megatron's already."""
    try:
        training = importlib.import_module(_TRAINING)
    except ImportError:
        return False
    return getattr(training, "load_checkpoint", None) is easyckpt.load_checkpoint


def _concat() -> bool:
    return os.environ.get("TIERCKPT_MEGATRON_CONCAT", "off") in ("on", "1")


def _asks_for_load(args: Any) -> bool:
    return args.load is not None or args.pretrained_checkpoint is not None or args.moe_use_upcycling


def _setup(training: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    """Megatron does not load anything without a directory; our versions are loaded in that case, too."""
    def setup_model_and_optimizer(*positional: Any, **keywords: Any) -> Any:
        model, optimizer, scheduler = original(*positional, **keywords)
        args = training.get_args()
        if optimizer is not None and not _asks_for_load(args):
            easyckpt.begin()
            args.iteration, args.num_floating_point_operations_so_far = easyckpt.load_checkpoint(
                model, optimizer, scheduler, concat=_concat())
        return model, optimizer, scheduler

    return setup_model_and_optimizer


def _load(_training: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def load_checkpoint(ddp_model: Any, optimizer: Any, opt_param_scheduler: Any, load_arg: str = "load",
                        strict: bool = True, **keywords: Any) -> Any:
        if optimizer is None or load_arg != "load":
            return original(ddp_model, optimizer, opt_param_scheduler, load_arg=load_arg, strict=strict, **keywords)
        easyckpt.begin()
        return easyckpt.load_checkpoint(ddp_model, optimizer, opt_param_scheduler, load_arg, strict, _concat(),
                                        **keywords)

    return load_checkpoint


def _save(training: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    save_stock = None if _SAVE.fault() else _save_stock

    def checkpoint_and_decide_exit(model: Any, optimizer: Any, opt_param_scheduler: Any, iteration: int,
                                   num_floating_point_operations_so_far: float | None, *positional: Any,
                                   **keywords: Any) -> Any:
        easyckpt.begin()
        state = (iteration, model, optimizer, opt_param_scheduler, num_floating_point_operations_so_far)
        leaves = original(model, optimizer, opt_param_scheduler, iteration, num_floating_point_operations_so_far,
                          *positional, **keywords)
        if leaves:
            _keep(state)
        else:
            easyckpt.save_checkpoint_if_needed(*state, save_stock=save_stock and functools.partial(
                save_stock, training, state, *positional, **keywords))
        return leaves

    return checkpoint_and_decide_exit


def _save_stock(training: Any, state: tuple[Any, ...], checkpointing_context: Any = None,
                train_data_iterator: Any = None, **_others: Any) -> None:
    """As checkpoint_and_decide_exit saves."""
    training.save_checkpoint_and_time(*state, checkpointing_context, train_data_iterator=train_data_iterator)


def _keep(state: tuple[Any, ...]) -> None:
    """Before an ordered exit, because the next start may run on other nodes. With storage_format framework, Megatron
    has saved to storage by itself."""
    checkpoint = easyckpt.checkpoint()
    if easyckpt.saves_stock():
        return
    if checkpoint is not None and checkpoint.stats().saves_started > 0:
        with contextlib.suppress(Error):  # a save is refused while too many before it are undecided
            checkpoint.wait("committed")
    try:
        easyckpt.save_checkpoint(*state, to_storage=True)
        checkpoint = easyckpt.checkpoint()
        if checkpoint is not None:
            checkpoint.wait("drained", timeout=STORAGE_TIMEOUT_S)
    except Error as error:
        log.warning("iteration %d may not have reached storage: %s", state[0], error)


def _train(_training: Any, original: Callable[..., Any]) -> Callable[..., Any]:
    def train(*positional: Any, **keywords: Any) -> Any:
        easyckpt.rewind_generators()
        try:
            result = original(*positional, **keywords)
        except BaseException as error:  # an ordered exit, too: the job will be started again
            if isinstance(error, SystemExit):
                easyckpt.wait_for_stock()
            easyckpt.finalize_easyckpt(job_done=False)
            raise
        easyckpt.finalize_easyckpt(job_done=True)
        return result

    return train


_WRAPPERS = {"setup_model_and_optimizer": _setup, "load_checkpoint": _load, "checkpoint_and_decide_exit": _save,
             "train": _train}


def install() -> bool:
    """Wraps the functions. Returns whether the hook is on. Calling it again changes nothing."""
    if os.environ.get("TIERCKPT_MEGATRON_HOOK", "on") in ("off", "0"):
        return False
    required = (*_REQUIRED_API, *(() if _loads_by_itself() else (_LOAD,)), *easyckpt.REQUIRED_API)
    if not usable("tierckpt.megatron.hook", "megatron-core", required):
        return False
    from megatron.training import training

    for name, wrapper in _WRAPPERS.items():
        original = getattr(training, name)
        if original is not easyckpt.load_checkpoint and not hasattr(original, "tierckpt_wraps"):
            wrapped: Any = functools.wraps(original)(wrapper(training, original))
            wrapped.tierckpt_wraps = original
            setattr(training, name, wrapped)
    return True
