# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM's arguments, if its training package is in use."""

import sys
from typing import Any


def arguments() -> Any:
    """None in a program that uses only megatron-core."""
    variables = sys.modules.get("megatron.training.global_vars")
    return None if variables is None else variables._GLOBAL_ARGS


def asked_iteration(args: Any) -> int | None:
    """--ckpt-step: the iteration to go back to. None without it, and for a training that begins with the weights of
    another one (--finetune): there it means an iteration of that one."""
    asked = getattr(args, "ckpt_step", None)
    return int(asked) if asked and not getattr(args, "finetune", False) else None
