# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint id of torch.distributed.checkpoint names: a directory, a number, and a series of checkpoints.

Ids that differ only in their number are one series, such as runs/step-100 and runs/step-200. The number is at the end
of the last part, or else it is the part before (runs/step-100/model). An id without a number is a series of its own."""

import hashlib
import os
import re
from dataclasses import dataclass, replace

from .. import errors

_AT_THE_END = re.compile(r"(.*\D)?(\d{1,18})", re.DOTALL)
_STEP = re.compile(r"((?:.*[-_.])?(?:(?:global_?)?steps?|checkpoint|ckpt|iter|iteration|epoch)[-_=]?)?(\d{1,18})", re.I)



@dataclass(frozen=True)
class Named:
    """A checkpoint id. Numbers below 1 do not count, because steps count from 1."""

    path: str
    """The directory that the id names, with an absolute path."""
    number: int | None
    series: str
    """The path with # in place of the number."""
    home: str
    """The directory that the whole series is in."""

    @property
    def digest(self) -> str:
        """Of the series; a part of the name of its job."""
        return hashlib.blake2b(self.series.encode(), digest_size=6).hexdigest()


CheckpointPath = str | os.PathLike[str] | int


def named(checkpoint_id: CheckpointPath) -> Named:
    """Raises InvalidArgumentError if the id is empty, and UnsupportedError if it is a URL."""
    text = str(checkpoint_id) if isinstance(checkpoint_id, int) else os.fspath(checkpoint_id)
    if not text or "\0" in text:
        raise errors.InvalidArgumentError(f"checkpoint_id {text!r} is no path: give that of a directory")
    if "://" in text:
        raise errors.UnsupportedError(f"checkpoint_id {text} is a URL: give a path on a file system that is mounted on "
                                      "every node, or pass storage_writer= and storage_reader= of "
                                      "torch.distributed.checkpoint, which then saves and loads by itself")
    path = os.path.abspath(text)
    home, last = os.path.split(path)
    above, part = os.path.split(home)
    if number := _number(_AT_THE_END, last):
        return Named(path, number, os.path.join(home, _stem(_AT_THE_END, last)), home)
    if not last[-1:].isdigit() and (number := _number(_STEP, part)):
        return Named(path, number, os.path.join(above, _stem(_STEP, part), last), above)
    return Named(path, None, path, home)


def named_part(checkpoint_id: CheckpointPath) -> Named:
    """The same for ids whose last part may be the name of a shard, which ends with the number of a rank: tp0_ep0_fsdp3.
    Only a number after a word such as `step`, or one that stands alone, is the number of a checkpoint."""
    name = named(checkpoint_id)
    home, last = os.path.split(name.path)
    if _number(_STEP, last):
        return name
    above, part = os.path.split(home)
    if number := _number(_STEP, part):
        return Named(name.path, number, os.path.join(above, _stem(_STEP, part), last), above)
    return Named(name.path, None, name.path, home)


def of_all_shards(name: Named) -> Named:
    """The same path as a part of the series that all ranks share, each of which names its own shard."""
    return replace(name, series=os.path.join(os.path.dirname(name.series), "local shards"))


def _number(pattern: re.Pattern[str], part: str) -> int:
    match = pattern.fullmatch(part)
    return int(match[2]) if match else 0


def _stem(pattern: re.Pattern[str], part: str) -> str:
    match = pattern.fullmatch(part)
    return (match and match[1] or "") + "#"
