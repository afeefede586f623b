# SPDX-License-Identifier: Apache-2.0
"""Tierckpt: checkpoints of a training job in the memory of its nodes.

    ckpt = tierckpt.init(model=model, optimizer=optimizer, scheduler=scheduler, config="tierckpt.json")
    step = ckpt.load_checkpoint() or 0
    while step < steps:
        ...forward, backward, optimizer.step(), scheduler.step()...
        step += 1
        ckpt.save_checkpoint_if_needed(step)
    ckpt.save_last(step)
    ckpt.close()

The modules directly in this package are its interface: this one, `errors`, and one for each framework. The folders are
private: runtime/ (the library, the agent, the other ranks), state/ (what is trained, as records and blobs), core/ (the
checkpoint) and adapters/ (the frameworks).

Names whose modules import torch are looked up on first use, so that the command `tierckpt` starts without it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from .errors import (
    BusyError,
    CanceledError,
    ConfigError,
    CorruptError,
    DeniedError,
    Error,
    ExistsError,
    InternalError,
    InvalidArgumentError,
    IoError,
    LayoutError,
    NoMemoryError,
    NoSpaceError,
    NotFoundError,
    ProtocolError,
    TimedOutError,
    UnreachableError,
    UnrecoverableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from .core.checkpoint import Checkpoint, init
    from .core.loading import Loaded, load
    from .core.published import Published, export, open_published
    from .core.saving import SaveResult
    from .runtime.native import Health
    from .state.groups import PRIVATE

_HOME = {
    "Checkpoint": "core.checkpoint",
    "init": "core.checkpoint",
    "Loaded": "core.loading",
    "load": "core.loading",
    "Published": "core.published",
    "export": "core.published",
    "open_published": "core.published",
    "SaveResult": "core.saving",
    "Health": "runtime.native",
    "PRIVATE": "state.groups",
}

__all__ = [
    "BusyError",
    "CanceledError",
    "Checkpoint",
    "ConfigError",
    "CorruptError",
    "DeniedError",
    "Error",
    "ExistsError",
    "Health",
    "InternalError",
    "InvalidArgumentError",
    "IoError",
    "LayoutError",
    "Loaded",
    "NoMemoryError",
    "NoSpaceError",
    "NotFoundError",
    "PRIVATE",
    "ProtocolError",
    "Published",
    "SaveResult",
    "TimedOutError",
    "UnreachableError",
    "UnrecoverableError",
    "UnsupportedError",
    "export",
    "init",
    "load",
    "open_published",
]
__version__: str
"""That of the library."""


def __getattr__(name: str) -> object:
    if name == "__version__":
        return import_module(f"{__name__}.runtime.native").version()
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
