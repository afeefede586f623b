# SPDX-License-Identifier: Apache-2.0
"""The end of a checkpoint that nobody closes.

A copy in the background reads tensors, so it must be over before they are freed: when the interpreter exits, when the
checkpoint is garbage, and when a second init of the same job takes the place of the first.
"""

import logging
import weakref

from .. import errors
from ..runtime import native, settings

log = logging.getLogger("tierckpt")

_open: "weakref.WeakKeyDictionary" = weakref.WeakKeyDictionary()  # checkpoint: the job that it is of


def job_of(config, overrides) -> tuple | None:
    """What tells one job's configuration from another's, None if it cannot be read: then attaching will say why."""
    try:
        values = settings.values_of(config, overrides)
        return tuple(str(values.get(key)) for key in ("job", "save_dir", "runtime_dir", "node"))
    except (errors.ConfigError, ValueError, TypeError):
        return None


def close_predecessor(job: tuple | None):
    """A notebook's cell that is run once more makes another checkpoint of its job while the first is still there."""
    for checkpoint in [known for known, its_job in _open.items() if job is not None and its_job == job]:
        log.warning("the checkpoint that this process had opened before for the same job is closed: what it saved "
                    "stays in memory for the new one")
        checkpoint.close(job_done=False)


def watch(checkpoint, client: native.Client, job: tuple | None) -> weakref.finalize:
    """Ends the client before the tensors of the checkpoint are freed, whatever comes first: garbage collection, or the
    interpreter's exit, at which a finalizer runs before any module is torn down."""
    _open[checkpoint] = job
    return weakref.finalize(checkpoint, _leave, client)


def _leave(client: native.Client):
    if client.is_open:
        log.info("the checkpoint was not closed: its save under way is finished, and memory keeps it for linger_s")
        client.detach(job_done=False)
