# SPDX-License-Identifier: Apache-2.0
"""What happens to a checkpoint that the program does not close.

A copy in the background reads tensors, so it must end before they are freed: when the interpreter exits, when the
checkpoint is collected as garbage, and when a second init of the same job replaces the first."""

import logging
import weakref
from types import TracebackType
from typing import Any, TypeVar

from .. import errors
from ..runtime import native, settings
from ..runtime.settings import ConfigSource, Overrides

log = logging.getLogger("tierckpt")

_open: "weakref.WeakKeyDictionary[Any, tuple[str, ...] | None]" = weakref.WeakKeyDictionary()
"""The job of each checkpoint that is open."""


_Self = TypeVar("_Self", bound="Closing")


class Closing:
    """A context manager that closes itself, with job_done=False if the block raised."""

    def close(self, job_done: bool = True) -> None:
        raise NotImplementedError

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: BaseException | None,
                 _traceback: TracebackType | None) -> None:
        self.close(job_done=kind is None)


def job_of(config: ConfigSource, overrides: Overrides) -> tuple[str, ...] | None:
    """Identifies the job of a configuration. None if the configuration cannot be read; attaching will then say why."""
    try:
        values = settings.values_of(config, overrides)
        return tuple(str(values.get(key)) for key in ("job", "save_dir", "runtime_dir", "node"))
    except (errors.ConfigError, ValueError, TypeError):
        return None


def close_predecessor(job: tuple[str, ...] | None) -> None:
    """Closes the checkpoint that this process already has of the job, as when a cell of a notebook is run again."""
    for checkpoint in [known for known, its_job in _open.items() if job is not None and its_job == job]:
        log.warning("the checkpoint that this process had opened before for the same job is closed: what it saved "
                    "stays in memory for the new one")
        checkpoint.close(job_done=False)


def watch(checkpoint: Any, client: native.Client,
          job: tuple[str, ...] | None) -> "weakref.finalize[[native.Client], Any]":
    """Makes sure that the client is detached before the tensors of the checkpoint are freed, whether by garbage
    collection or at the exit of the interpreter, where a finalizer runs before modules are torn down."""
    _open[checkpoint] = job
    return weakref.finalize(checkpoint, _leave, client)


def _leave(client: native.Client) -> None:
    if client.is_open:
        log.info("the checkpoint was not closed: its save under way is finished, and memory keeps it for linger_s")
        client.detach(job_done=False)
