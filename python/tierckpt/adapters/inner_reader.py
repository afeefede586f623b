# SPDX-License-Identifier: Apache-2.0
"""A reader for torch.distributed.checkpoint that finds out only when it is asked which reader has what it names."""

from typing import Any

import torch
from torch.distributed.checkpoint import storage as torch_storage
from torch.distributed.checkpoint.metadata import Metadata


class InnerReader(torch_storage.StorageReader):
    """Passes everything on to the reader that `choose` returns, which is asked for once per load."""

    def __init__(self) -> None:
        self._inner: Any = None

    def choose(self) -> torch_storage.StorageReader:
        """The reader to load with. Raises NotFoundError if nothing was saved."""
        raise NotImplementedError

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        self._inner = self.choose()
        metadata: Metadata = self._inner.read_metadata()
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        self._inner.set_up_storage_reader(metadata, is_coordinator, *args, **kwargs)

    def prepare_local_plan(self, plan: Any) -> Any:
        return self._inner.prepare_local_plan(plan)

    def prepare_global_plan(self, plans: list[Any]) -> list[Any]:
        plans = self._inner.prepare_global_plan(plans)
        return plans

    def read_data(self, plan: Any, planner: Any) -> torch.futures.Future[None]:
        done: torch.futures.Future[None] = self._inner.read_data(plan, planner)
        return done


class StateDictReader(InnerReader):
    """One that can also load from memory, if it is given the state dict before: tierckpt.dcp.load does so."""

    def attach(self, state_dict: dict[str, Any]) -> None:
        """Registers the layout of this state dict. Collective."""
        raise NotImplementedError

    def loaded(self) -> None:
        """After a load that began with attach."""
        raise NotImplementedError
