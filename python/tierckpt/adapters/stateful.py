# SPDX-License-Identifier: Apache-2.0
"""Models and optimizers as values of a state dict for torch.distributed.checkpoint, by the names of the parameters."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

# By parameter, and not by place in a group: so stages of a pipeline, and other numbers of ranks, fit together.
_BY_PARAMETER = StateDictOptions(flatten_optimizer_state_dict=True)
_EACH_ITS_OWN = StateDictOptions(strict=False)  # of several parts, each finds the keys of the others, too


class ModelWrapper:
    """The weights of a model, or of the parts of one."""

    def __init__(self, model: nn.Module | Iterable[nn.Module]) -> None:
        self.model = [model] if isinstance(model, nn.Module) else list(model)

    def state_dict(self) -> dict[str, Any]:
        return {key: value for part in self.model for key, value in get_model_state_dict(part).items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part in self.model:
            set_model_state_dict(part, state_dict, options=_EACH_ITS_OWN if len(self.model) > 1 else None)


class OptimizerWrapper:
    """The state of the optimizers of these parts, one of each."""

    def __init__(self, model: nn.Module | Iterable[nn.Module],
                 optim: torch.optim.Optimizer | Iterable[torch.optim.Optimizer]) -> None:
        self.model = [model] if isinstance(model, nn.Module) else list(model)
        self.optim = [optim] if isinstance(optim, torch.optim.Optimizer) else list(optim)

    def state_dict(self) -> dict[str, Any]:
        return {key: value for part, optimizer in zip(self.model, self.optim, strict=True)
                for key, value in get_optimizer_state_dict(part, optimizer, options=_BY_PARAMETER).items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for part, optimizer in zip(self.model, self.optim, strict=True):
            set_optimizer_state_dict(part, optimizer, state_dict, options=_BY_PARAMETER)
