# SPDX-License-Identifier: Apache-2.0
"""`storage_format` framework: a step for storage becomes a checkpoint of DeepSpeed, written in the background.

DeepSpeed's files have what DeepSpeed loads. A small file of each rank beside them, tierckpt-rank<r>.pt, has the
generators, the number of micro steps, and the client_state of that rank, of which DeepSpeed keeps only that of the
first one."""

import logging
import os
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from .. import errors
from ..runtime.world import World
from ..state.arguments import Stateful
from ..state.rng import Rng
from ..state.user_state import put_back
from .background_writer import copy_to_cpu
from .marked import delete_cut_off, delete_old, empty_trash, is_marked, mark, mark_complete

log = logging.getLogger("tierckpt")

_PREFIX = "global_step"


class ZeroFiles:
    """The checkpoints global_step<N> in one directory. `keep` of them are kept; 0: all."""

    def __init__(self, engine: Any, world: World, directory: str, keep: int,
                 client_state: dict[str, Any] | Stateful | None) -> None:
        self.directory = directory
        self._engine, self._world, self._keep = engine, world, keep
        self._client_state = client_state
        if world.rank == 0 and os.path.isdir(directory):
            empty_trash(Path(directory))

    # ---- save

    def save(self, step: int) -> None:
        """Copies the state and returns. Waits for the checkpoint before. Collective."""
        files, tag = self._engine.checkpoint_engine, f"{_PREFIX}{step}"
        client_state = self._state()
        own = {"client_state": copy_to_cpu(client_state), "torch": torch.get_rng_state(),
               "rng": Rng().blob(None).capture(), "micro_steps": self._engine.micro_steps}
        try:
            with files.together(f"checkpoint {tag} in {self.directory}", self._delete_old) as writer:
                writer.do(f"the marker of {tag}", partial(self._begin, Path(self.directory, tag)))
                files.beside = partial(files.save, own, str(self._of_rank(tag)))
                self._engine.save_checkpoint(self.directory, tag=tag,
                                             client_state=client_state if isinstance(client_state, dict) else {})
        except OSError as error:  # as for any other save: training continues
            log.error("no checkpoint %s in %s: %s", tag, self.directory, error)

    def _state(self) -> Any:
        state = self._client_state
        return state if state is None or isinstance(state, dict) else state.state_dict()

    def _of_rank(self, tag: str) -> Path:
        return Path(self.directory, tag, f"tierckpt-rank{self._world.rank}.pt")

    def _delete_old(self) -> None:
        """Called when `latest` names the newest."""
        current = self._latest()
        if self._world.rank == 0 and current is not None:
            directory = Path(self.directory)
            if is_marked(directory / f"{_PREFIX}{current}"):
                mark_complete(directory / f"{_PREFIX}{current}")
            delete_cut_off(directory, _PREFIX, current)
            delete_old(directory, _PREFIX, self._keep, current)

    def _begin(self, directory: Path) -> None:
        if self._world.rank == 0:
            directory.mkdir(parents=True, exist_ok=True)
            mark(directory)

    def wait(self, timeout: float | None = None) -> None:
        """Raises TimedOutError after `timeout` seconds."""
        self._engine.checkpoint_engine.wait(timeout)

    # ---- load

    def _latest(self) -> int | None:
        """The step of the checkpoint that `latest` names; None if there is none. Another name is not ours."""
        try:
            match = re.fullmatch(rf"{_PREFIX}(\d+)", Path(self.directory, "latest").read_text().strip())
        except FileNotFoundError:
            return None
        return int(match[1]) if match else None

    def newest(self) -> int | None:
        """The same on every rank. Collective."""
        return self._agreed(self._latest)

    def has(self, step: int) -> bool:
        """Whether a step is there as a whole: `latest` names it or a later one. Collective."""
        def here() -> bool:
            return step <= (self._latest() or 0) and Path(self.directory, f"{_PREFIX}{step}").is_dir()

        return bool(self._agreed(here))

    def _agreed(self, look: Callable[[], Any]) -> Any:
        fault, found = None, None
        try:
            found = look() if self._world.rank == 0 else None
        except OSError as error:
            fault = str(error)
        found, fault = self._world.gather((found, fault))[0]
        if fault is not None:
            raise errors.IoError(fault)
        return found

    def load(self, step: int) -> None:
        """Into the engine, client_state and generators. Collective."""
        tag = f"{_PREFIX}{step}"
        path, client_state = self._engine.load_checkpoint(self.directory, tag=tag)
        if path is None:
            raise errors.CorruptError(f"DeepSpeed cannot load {tag} in {self.directory}: see its messages")
        own = self._of_rank(tag)
        if not own.is_file():
            log.warning("%s has nothing of rank %d, which is new: its generators stay as they are", tag,
                        self._world.rank)
            self._put(self._known_of(client_state))
            return
        saved = torch.load(own, map_location="cpu", weights_only=False)
        self._put(saved["client_state"])
        self._engine.micro_steps = saved["micro_steps"]
        torch.set_rng_state(saved["torch"])
        Rng().blob(None).apply(saved["rng"])  # torch's stay as they are

    def _put(self, client_state: Any) -> None:
        if self._client_state is not None and client_state is not None:
            put_back(self._client_state, client_state)

    def _known_of(self, client_state: dict[str, Any]) -> Any:
        """Without what DeepSpeed adds to it."""
        known = self._state()
        return {key: client_state[key] for key in known if key in client_state} if isinstance(known, dict) else None
