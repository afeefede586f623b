# SPDX-License-Identifier: Apache-2.0
"""What becomes of versions that only memory has when another number of ranks comes: they are published first."""

import logging
import time

from . import control, errors
from .oob import World
from .published import open_published

log = logging.getLogger("tierckpt")

_TRAINERS_GONE_S = 5


def published_or_none(config, overrides, step):
    try:
        return open_published(config, step=step, overrides=overrides)
    except errors.NotFound:
        return None


def drain(values: dict, version: tuple[int, int]):
    if control.ask(values, "drain", "--wait") is None:
        raise errors.Unrecoverable(f"step {version[1]} (term {version[0]}) is only in the agents' memory and could not "
                                   "be published for ranks of another layout (see the agents' logs): start with as "
                                   "many ranks as saved it, or name an older step to load")


def publish_for(world: World, config, overrides):
    """What another number of ranks has committed only in memory, before this world attaches: after that nobody but such
    a world could. Collective."""
    found, values = (0, 0), {}
    try:
        values = control.values_of(config, overrides)
        found = _of_other_ranks(values, world.size)
    except Exception as error:
        log.warning("what the agents' memory has of other numbers of ranks cannot be told: %s", error)
    everywhere = world.gather(found)
    newest = max(everywhere)
    if newest == (0, 0):
        return
    if everywhere.index(newest) == world.rank:
        try:
            published = published_or_none(config, overrides, None)
            if published is None or tuple(published.version) < newest:
                drain(values, newest)
        except Exception as error:
            log.warning("%s", error)
    world.gather(None)


def _of_other_ranks(values: dict, ranks: int) -> tuple[int, int]:
    """The newest committed version, if the world that has it had another number of ranks and is gone. Its trainers may
    have ended just now, and the agent may not have noticed yet."""
    deadline = time.monotonic() + _TRAINERS_GONE_S
    while (status := control.ask(values, "status")) is not None and status.get("ranks") != ranks:
        if not status.get("trainers"):
            return control.version_of(status, "committed")
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return (0, 0)
