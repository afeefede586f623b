# SPDX-License-Identifier: Apache-2.0
"""checkpoint-<step> of Hugging Face's Trainer, without DeepSpeed, written in the background from copies in memory.

What the Trainer writes with functions of its own is written by these, small files into a directory on this node first:
storage that is slow or fails must not delay or end the training."""

import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ..runtime.world import World
from .agreement import Agreement
from .background_writer import BackgroundWriter, copy_to_cpu, sync_files
from .hf_layout import WrittenCheckpoints, building

log = logging.getLogger("tierckpt")


class CopiedCheckpoints:
    """Each rank writes what it would write for the Trainer. `directories` is None on all ranks but the first."""

    def __init__(self, trainer: Any, world: World, directories: WrittenCheckpoints | None) -> None:
        """Collective."""
        self._trainer = trainer
        self._directories = directories
        self._agreement = Agreement(world)
        self._writer = BackgroundWriter(self._agreement)

    def write(self, step: int, write_state: Callable[[str], object]) -> None:
        """Copies the state and returns. write_state writes the Trainer's state to a path. Waits for the directory
        before. Collective."""
        try:
            self._write(step, Path(self._trainer.args.output_dir, f"tmp-checkpoint-{step}"), write_state)
        except OSError as error:  # of the temporary directory; as for any other save: training continues
            log.error("no checkpoint-%d: %s", step, error)

    def _write(self, step: int, directory: Path, write_state: Callable[[str], object]) -> None:
        with self._writer.together(f"checkpoint-{step}", partial(sync_files, directory),
                                   partial(self._complete, step)) as writer:
            writer.do(str(directory), partial(self._begin, step))
            for name, content in _small_files(self._trainer, write_state).items():
                writer.do(str(directory / name), partial(_write_bytes, directory / name, content))
            with weights_aside(self._trainer, writer):
                self._trainer.save_model(str(directory), _internal_call=True)
            if self._trainer.args.should_save and not self._trainer.args.save_only_model:
                state = copy_to_cpu(self._trainer.optimizer.state_dict())
                writer.do(str(directory / "optimizer.pt"), partial(torch.save, state, directory / "optimizer.pt"))

    def _begin(self, step: int) -> None:
        if self._directories is not None:
            self._directories.delete_unfinished(besides=step)
        building(self._trainer.args.output_dir, step)

    def _complete(self, step: int) -> None:
        if self._directories is not None:
            self._directories.complete(step)

    def wait(self) -> None:
        """Waits until nothing is left to write."""
        self._writer.wait()

    def close(self) -> None:
        self.wait()
        self._agreement.close()


def _write_bytes(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _small_files(trainer: Any, write_state: Callable[[str], object]) -> dict[str, bytes]:
    """By their names, what this rank writes beside model and optimizer."""
    with tempfile.TemporaryDirectory(prefix="tierckpt-files-") as near:
        if not trainer.args.save_only_model:
            trainer._save_rng_state(near)
            trainer._save_scaler(near)
        if trainer.args.should_save:
            if not trainer.args.save_only_model:
                torch.save(trainer.lr_scheduler.state_dict(), os.path.join(near, "scheduler.pt"))
            write_state(os.path.join(near, "trainer_state.json"))
        return {path.name: path.read_bytes() for path in Path(near).iterdir()}


@contextmanager
def weights_aside(trainer: Any, writer: BackgroundWriter) -> Iterator[None]:
    """What trainer.save_model collects is written by the writer."""
    save = trainer._save

    def later(output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        dummy = state_dict is not None and not state_dict  # which it deletes again at once
        if dummy or not trainer.args.should_save:
            save(output_dir, state_dict=state_dict)
            return
        state = copy_to_cpu(trainer.model.state_dict() if state_dict is None else state_dict)
        writer.do(f"the model in {output_dir}", partial(save, output_dir, state_dict=state))

    before = vars(trainer).get("_save")
    trainer._save = later
    try:
        yield
    finally:
        del trainer._save
        if before is not None:
            trainer._save = before
