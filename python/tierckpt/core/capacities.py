# SPDX-License-Identifier: Apache-2.0
"""The capacities that blobs had when a version was saved.

Capacities are part of the layout, so a version that was saved after a blob got a larger capacity has another layout
than a program that starts with the default. The versions themselves, in memory and on storage, record their
capacities."""

import logging
from collections.abc import Callable

from .. import errors
from ..runtime import control, native
from ..runtime.settings import ConfigSource, Overrides
from ..runtime.world import World
from .publish_first import published_or_none

log = logging.getLogger("tierckpt")

Found = tuple[native.Version, dict[str, int]]
"""A version (term, step) and its known capacities, by key."""

_LENGTH_BYTES = 8  # before the content of a blob
_NOTHING: Found = (native.NO_VERSION, {})


def of_saved(world: World, config: ConfigSource, overrides: Overrides, step: int) -> dict[str, int]:
    """The capacities, by key for all ranks, of the newest version that can be found, or of the version of a step. Empty
    if there is none. Each node looks in its own memory, and rank 0 reads storage. Collective."""
    found = [_looked_up("this node's memory", _in_memory, config, overrides, step)]
    if world.rank == 0:
        found.append(_looked_up("storage", _on_storage, config, overrides, step))
    everywhere = [one for of_rank in world.gather(found) for one in of_rank]
    newest = max(version for version, _ in everywhere)
    return {key: capacity for version, capacities in everywhere if version == newest
            for key, capacity in capacities.items()}


def _looked_up(where: str, look: Callable[..., Found], config: ConfigSource, overrides: Overrides, step: int) -> Found:
    """An error here is only logged: the error that led to this call says why nothing was loaded."""
    try:
        return look(config, overrides, step)
    except (errors.Error, OSError) as error:
        log.warning("the capacities of the saved state cannot be read from %s: %s", where, error)
        return _NOTHING


def _in_memory(config: ConfigSource, overrides: Overrides, step: int) -> Found:
    answer = control.ask(config, overrides, "show")
    found: dict[native.Version, dict[str, int]] = {}
    for segment in (answer or {}).get("segments", ()):
        for slot in segment["slots"]:
            version = control.version_of(slot, "version")
            if slot["committed"] and slot["state"] == "verified" and step in (version.step, native.NEWEST):
                found.setdefault(version, {}).update(segment["blobs"])
    return max(found.items(), default=_NOTHING)


def _on_storage(config: ConfigSource, overrides: Overrides, step: int) -> Found:
    published = published_or_none(config, overrides, None if step == native.NEWEST else step)
    if published is None:
        return _NOTHING
    with published:
        return published.version, {entry.key: entry.local_shape[0] - _LENGTH_BYTES
                                          for entry in published.entries if entry.blob}
