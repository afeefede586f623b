# SPDX-License-Identifier: Apache-2.0
"""What Megatron-LM's own save_checkpoint would write.

That function runs as in Megatron's loop and builds everything; only the calls that would write are replaced. So the
result has whatever this Megatron-LM puts into its checkpoints."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ... import errors
from ..api_compat import RequiredApi
from ..shared_copy import hollow

_CHECKPOINTING = "megatron.training.checkpointing"
_DIST = "megatron.core.dist_checkpointing"
SHARDED, LEGACY = "torch_dist", "torch"
REQUIRED_API = (
    RequiredApi(f"{_CHECKPOINTING}:save_checkpoint", (
        "iteration", "model", "optimizer", "opt_param_scheduler", "num_floating_point_operations_so_far")),
    RequiredApi(f"{_CHECKPOINTING}:dist_checkpointing.save", (
        "sharded_state_dict", "checkpoint_dir", "sharded_strategy", "validate_access_integrity", "async_sharded_save",
        "content_metadata")),
    RequiredApi(f"{_CHECKPOINTING}:schedule_async_save", ("async_request",)),
    RequiredApi(f"{_CHECKPOINTING}:ensure_directory_exists", ("filename",)),
    RequiredApi(f"{_CHECKPOINTING}:get_checkpoint_tracker_filename", ("checkpoints_path",)),
    RequiredApi(f"{_DIST}.state_dict_utils:save_preprocess", ("sharded_state_dict", "validate_access_integrity")),
    RequiredApi(f"{_DIST}.strategies.torch:TorchDistSaveShardedStrategy.__init__", (
        "self", "backend", "version", "thread_count")),
    RequiredApi(f"{_DIST}.strategies.fully_parallel:distribute_main_replicas_with_precomputed_distribution", (
        "sharded_state_dict", "parallelization_group", "precomputed_distribution")),
    RequiredApi(f"{_DIST}.exchange_utils:determine_main_replica_uniform_distribution", (
        "sharded_state_dict", "parallelization_group")),
)
_NOT_FOR_OTHERS = ("sharded_strategy", "async_sharded_save", "async_strategy",
                   "preprocess_common_before_consistancy_check")


@dataclass
class Unwritten:
    """The files of one rank, or its part of a sharded state dict."""

    files: dict[str, Any] = field(default_factory=dict)
    """By their full paths, what torch.save would write."""
    sharded: dict[str, Any] | None = None
    """The arguments of dist_checkpointing.save without the directory."""
    threads: int = 1
    afterwards: list[Callable[[], object]] = field(default_factory=list)
    """To be called when it is written, apart from what Megatron does to its own directories then."""


def build(args: Any, save: Callable[[], object]) -> Unwritten:
    """`save` calls Megatron's save_checkpoint. Collective. Raises UnsupportedError for a format that is not known."""
    if args.ckpt_format == SHARDED:
        return _sharded(args, save)
    if args.ckpt_format == LEGACY:
        return _legacy(args, save)
    raise errors.UnsupportedError(f"--ckpt-format {args.ckpt_format} cannot be written by storage_format framework")


# ---- torch_dist


class _Request:
    """In the place of Megatron's AsyncRequest: nothing is to be done."""

    def __init__(self) -> None:
        self.finalize_fns: list[Callable[[], object]] = []

    def add_finalize_fn(self, function: Callable[[], object]) -> None:
        self.finalize_fns.append(function)


class _WithoutSave:
    """The module dist_checkpointing, except that `save` only takes its arguments."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self.taken: dict[str, Any] = {}
        self.request = _Request()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def save(self, sharded_state_dict: Any, checkpoint_dir: Any, sharded_strategy: Any = None,
             **named: Any) -> _Request:
        if self.taken:
            raise errors.UnsupportedError(f"this Megatron-LM writes more than one state dict into {checkpoint_dir}, "
                                          "which storage_format framework cannot: take it out of the configuration")
        self.taken = {"sharded_state_dict": sharded_state_dict, "sharded_strategy": sharded_strategy, **named}
        return self.request


def _sharded(args: Any, save: Callable[[], object]) -> Unwritten:
    from megatron.training import checkpointing

    calls = _WithoutSave(checkpointing.dist_checkpointing)
    with _changed(checkpointing, dist_checkpointing=calls, schedule_async_save=_nothing,
                  ensure_directory_exists=_nothing), _changed(args, async_save=True):
        save()
    strategy = calls.taken["sharded_strategy"]
    sharded = {name: value for name, value in calls.taken.items() if name not in _NOT_FOR_OTHERS}
    sharded["sharded_state_dict"] = _own_part(sharded["sharded_state_dict"], strategy)
    inner = getattr(strategy, "base_strategy", strategy)
    afterwards = [one for one in calls.request.finalize_fns if getattr(one, "__name__", "") != "iter_finalize_fn"]
    return Unwritten(sharded=sharded, threads=getattr(inner, "thread_count", 1), afterwards=afterwards)


def _own_part(state_dict: Any, strategy: Any) -> dict[str, Any]:
    """As dist_checkpointing.save and its strategy prepare it, with the content of only what this rank has to write. The
    places of sharded tensors are in them, not in the dict."""
    from megatron.core.dist_checkpointing.dict_utils import nested_values
    from megatron.core.dist_checkpointing.mapping import ShardedTensor, is_main_replica
    from megatron.core.dist_checkpointing.state_dict_utils import save_preprocess
    from megatron.core.dist_checkpointing.strategies.fully_parallel import FullyParallelSaveStrategyWrapper

    sharded, common = save_preprocess(state_dict, validate_access_integrity=False)
    if isinstance(strategy, FullyParallelSaveStrategyWrapper):
        _divide(sharded, strategy)
    for part in nested_values(sharded):
        if isinstance(part, ShardedTensor) and part.data is not None and not is_main_replica(part.replica_id):
            part.data = hollow(part.data)
    return {**common, "tierckpt": sharded}


def _divide(sharded: Any, strategy: Any) -> None:
    """Among the ranks of its group that have the same."""
    from megatron.core.dist_checkpointing.exchange_utils import determine_main_replica_uniform_distribution
    from megatron.core.dist_checkpointing.strategies.fully_parallel import (
        distribute_main_replicas_with_precomputed_distribution,
    )

    group, known = strategy.parallelization_group, strategy.cached_distribution
    if known is None:
        known = determine_main_replica_uniform_distribution(sharded, group)
    if strategy.do_cache_distribution:
        strategy.cached_distribution = known
    distribute_main_replicas_with_precomputed_distribution(sharded, group, known)


# ---- torch, the legacy format


def _legacy(args: Any, save: Callable[[], object]) -> Unwritten:
    """This one Megatron can only write at once: what it does after that must not happen yet."""
    from megatron.training import checkpointing

    found = Unwritten()
    with ExitStack() as changes:
        changes.enter_context(_changed(
            checkpointing, ensure_directory_exists=_nothing, print_rank_0=_nothing,
            get_checkpoint_tracker_filename=lambda _path: "/dev/null"))
        changes.enter_context(_changed(args, async_save=False, save_retain_interval=None))
        changes.enter_context(_saves_into(found.files))
        save()
    return found


@contextmanager
def _saves_into(files: dict[str, Any]) -> Iterator[None]:
    """torch.save of this thread."""
    save, thread = torch.save, threading.get_ident()

    def taken(value: Any, file: Any, *positional: Any, **named: Any) -> None:
        if threading.get_ident() == thread and isinstance(file, (str, Path)):
            files[os.path.abspath(file)] = value
        else:
            save(value, file, *positional, **named)

    with _changed(torch, save=taken):
        yield


def _nothing(*_positional: Any, **_named: Any) -> None:
    pass


@contextmanager
def _changed(owner: Any, **values: Any) -> Iterator[None]:
    """Attributes for a while. Those that are not there are not there afterwards, either."""
    before = {name: vars(owner)[name] for name in values if name in vars(owner)}
    vars(owner).update(values)
    try:
        yield
    finally:
        for name in values:
            vars(owner).pop(name)
        vars(owner).update(before)
