# SPDX-License-Identifier: Apache-2.0
"""Versions that only memory has are published before ranks of another layout attach, and before they are read."""

import logging
import time
from typing import Any

from .. import errors
from ..runtime import control
from ..runtime.native import NO_VERSION, Version
from ..runtime.settings import ConfigSource, Overrides
from ..runtime.world import World
from ..state.contents import Contents
from . import tables
from .published import Published, is_directory, open_published

log = logging.getLogger("tierckpt")

_TRAINERS_GONE_S = 5


def published_or_none(config: ConfigSource, overrides: Overrides, step: int | None) -> Published | None:
    try:
        return open_published(config, step=step, overrides=overrides)
    except errors.NotFoundError:
        return None


def drain(config: ConfigSource, overrides: Overrides, version: Version) -> None:
    if control.ask(config, overrides, "drain", "--wait") is None:
        raise errors.UnrecoverableError(
            f"step {version[1]} (term {version[0]}) is only in the agents' memory and could not "
            "be published for ranks of another layout (see the agents' logs): start with as "
            "many ranks as saved it, or name an older step to load")


def only_in_memory(version: Version) -> str:
    return (f"step {version[1]} (term {version[0]}) is only in the agents' memory, and has another layout than the "
            "ranks that attached last. Attach again with the layout that saved it, to continue from it or to publish "
            "it (`tierckpt drain --wait` after the load); or name an older step to load")


def newest_published(config: ConfigSource, overrides: Overrides, step: int | None) -> Published:
    """The newest version, or that of a step. If memory has a newer one than storage, the agents publish it first.
    Raises NotFoundError if there is none, and LayoutError if only ranks of its own layout can get it published."""
    if is_directory(config):
        return open_published(config, step=step, overrides=overrides)
    published = published_or_none(config, overrides, step)
    status = control.ask(config, overrides, "status")
    committed = control.version_of(status, "committed")
    newest = max(committed, control.version_of(status, "held"))
    if newest <= (published.version if published else NO_VERSION) or step not in (None, newest[1]):
        found = published or open_published(config, step=step, overrides=overrides)
        log.info("step %d (term %d) is read from storage, %s%s", found.step, found.version.term, found.info.path,
                 "; no agent answers on this node that could have a newer one in memory" if status is None else "")
        return found
    if newest != committed:
        raise errors.LayoutError(only_in_memory(newest))
    drain(config, overrides, newest)
    found = open_published(config, step=step, overrides=overrides)
    log.info("step %d (term %d) was only in the agents' memory: they have published it as %s", found.step,
             found.version.term, found.info.path)
    return found


def publish_for(world: World, contents: Contents, config: ConfigSource, overrides: Overrides) -> None:
    """Publishes what ranks of another layout have committed to memory only, before this world attaches; afterwards only
    ranks of that layout could. Collective."""
    found, held = NO_VERSION, None
    try:
        found, status = _of_other_ranks(config, overrides, world.size)
        held = tables.held_by(status, world.size)
    except errors.ConfigError:
        pass  # attach, which comes next, raises it on all ranks
    except Exception as error:
        log.warning("whether the agents' memory has a version of another layout cannot be determined: %s", error)
    everywhere = world.gather((found, held))
    newest = max(found for found, _ in everywhere)
    if newest == NO_VERSION:
        newest = _of_another_table(world, contents, [held for _, held in everywhere], config, overrides)
    knows = [newest in (found, held and held.version) for found, held in everywhere]
    if newest == NO_VERSION:
        return
    if knows.index(True) == world.rank:
        _publish(newest, config, overrides)
    world.gather(None)


def _publish(version: Version, config: ConfigSource, overrides: Overrides) -> None:
    try:
        published = published_or_none(config, overrides, None)
        if published is None or published.version < version:
            log.info("step %d (term %d) is only in the agents' memory, and of another layout than what is registered "
                     "now: it is published first", version[1], version[0])
            drain(config, overrides, version)
    except Exception as error:
        log.warning("%s", error)


def _of_another_table(world: World, contents: Contents, held: list[tables.Held | None], config: ConfigSource,
                      overrides: Overrides) -> Version:
    """The same for a world of the same size with other tensors, or with other pieces of them. One rank of each node
    asks its agent."""
    nodes = [one and one.node for one in held]
    if not any(nodes):
        return NO_VERSION
    mine, own = held[world.rank], None
    try:
        own = tables.of_contents(contents, world.rank)
        if mine is not None and nodes.index(mine.node) == world.rank:
            mine = tables.looked_up(mine, config, overrides)
    except Exception as error:
        log.warning("whether the agents' memory has another layout cannot be determined: %s", error)
    answers = world.gather((own, mine))
    if any(own is None for own, _ in answers):
        return NO_VERSION
    return tables.other_than([own for own, _ in answers], [one for _, one in answers if one is not None]) or NO_VERSION


def _of_other_ranks(config: ConfigSource, overrides: Overrides,
                    ranks: int) -> tuple[Version, dict[str, Any] | None]:
    """The newest committed version, if its world had another number of ranks and has ended; and the status of the
    agent. The trainers of that world may have ended just now, before the agent has noticed it."""
    deadline = time.monotonic() + _TRAINERS_GONE_S
    while (status := control.ask(config, overrides, "status")) is not None and status.get("ranks") != ranks:
        if not status.get("trainers"):
            return control.version_of(status, "committed"), status
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return NO_VERSION, status
