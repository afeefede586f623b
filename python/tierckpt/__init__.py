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

Names are looked up on first use, so that the command `tierckpt` starts without importing torch.
"""

from importlib import import_module

_HOME = {
    "init": "checkpoint",
    "Checkpoint": "checkpoint",
    "SaveResult": "saving",
    "load": "loading",
    "Loaded": "loading",
    "Health": "_native",
    "PRIVATE": "groups",
    "open_published": "published",
    "export": "published",
    "Published": "published",
    "Error": "errors",
    "InvalidArgument": "errors",
    "NoMemory": "errors",
    "IoError": "errors",
    "NotFound": "errors",
    "Busy": "errors",
    "TimedOut": "errors",
    "Canceled": "errors",
    "Corrupt": "errors",
    "NoSpace": "errors",
    "Unreachable": "errors",
    "Unsupported": "errors",
    "ProtocolError": "errors",
    "LayoutError": "errors",
    "Unrecoverable": "errors",
    "ConfigError": "errors",
    "Denied": "errors",
    "Exists": "errors",
    "InternalError": "errors",
}

__all__ = sorted(_HOME)
__version__ = "0.1.0"


def __getattr__(name):
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__():
    return sorted(set(globals()) | set(__all__))
