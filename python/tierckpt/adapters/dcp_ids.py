# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint id of torch.distributed.checkpoint names: a directory, or a place in a bucket, a number, and a
series of checkpoints.

Ids that differ only in their number are one series, such as runs/step-100 and runs/step-200. The number is at the end
of the last part, or else it is the part before (runs/step-100/model). An id without a number is a series of its own."""

import hashlib
import os
import posixpath
import re
from dataclasses import dataclass, replace

from .. import errors
from ..runtime.settings import is_url

_AT_THE_END = re.compile(r"(.*\D)?(\d{1,18})", re.DOTALL)
_BUCKET = re.compile(r"s3://[^/]+")
_STEP = re.compile(r"((?:.*[-_.])?(?:(?:global_?)?steps?|checkpoint|ckpt|iter|iteration|epoch)[-_=]?)?(\d{1,18})", re.I)


@dataclass(frozen=True)
class Named:
    """A checkpoint id. Numbers below 1 do not count, because steps count from 1."""

    path: str
    """The directory that the id names, with an absolute path, or the URL that it is."""
    number: int | None
    series: str
    """The path with # in place of the number."""
    home: str
    """The directory that the whole series is in."""

    @property
    def in_bucket(self) -> bool:
        """Whether it is a place in a store of objects, which has no directories and no links."""
        return is_url(self.path)

    @property
    def digest(self) -> str:
        """Of the series; a part of the name of its job."""
        return hashlib.blake2b(self.series.encode(), digest_size=6).hexdigest()


CheckpointPath = str | os.PathLike[str] | int


def named(checkpoint_id: CheckpointPath) -> Named:
    """Raises InvalidArgumentError if the id is empty, and UnsupportedError if it is a URL of something else than S3."""
    bucket, path = _split(checkpoint_id)
    home, last = os.path.split(path)
    above, part = os.path.split(home)
    if number := _number(_AT_THE_END, last):
        return _named(bucket, path, number, os.path.join(home, _stem(_AT_THE_END, last)), home)
    if not last[-1:].isdigit() and (number := _number(_STEP, part)):
        return _named(bucket, path, number, os.path.join(above, _stem(_STEP, part), last), above)
    return _named(bucket, path, None, path, home)


def named_part(checkpoint_id: CheckpointPath) -> Named:
    """The same for ids whose last part may be the name of a shard, which ends with the number of a rank: tp0_ep0_fsdp3.
    Only a number after a word such as `step`, or one that stands alone, is the number of a checkpoint."""
    bucket, path = _split(checkpoint_id)
    home, last = os.path.split(path)
    if _number(_STEP, last):
        return named(checkpoint_id)
    above, part = os.path.split(home)
    if number := _number(_STEP, part):
        return _named(bucket, path, number, os.path.join(above, _stem(_STEP, part), last), above)
    return _named(bucket, path, None, path, home)


def of_all_shards(name: Named) -> Named:
    """The same path as a part of the series that all ranks share, each of which names its own shard."""
    return replace(name, series=os.path.join(os.path.dirname(name.series), "local shards"))


def _split(checkpoint_id: CheckpointPath) -> tuple[str, str]:
    """The URL of the bucket, or "", and the absolute path."""
    text = str(checkpoint_id) if isinstance(checkpoint_id, int) else os.fspath(checkpoint_id)
    if not text or "\0" in text:
        raise errors.InvalidArgumentError(f"checkpoint_id {text!r} is no path: give that of a directory")
    if text.startswith("s3:/") and not is_url(text):
        raise errors.InvalidArgumentError(f"checkpoint_id {text} has lost a slash, as URLs do in a pathlib.Path: give "
                                          f"the text s3://{text[4:]}")
    if bucket := _BUCKET.match(text):
        path = posixpath.normpath("/" + text[bucket.end():].lstrip("/"))
        if path == "/":
            raise errors.InvalidArgumentError(f"checkpoint_id {text} is a bucket: give a path in it")
        return bucket[0], path
    if "://" in text:
        raise errors.UnsupportedError(f"checkpoint_id {text} is a URL: give a path on a file system that is mounted on "
                                      "every node, or s3://bucket/path, or pass storage_writer= and storage_reader= of "
                                      "torch.distributed.checkpoint, which then saves and loads by itself")
    return "", os.path.abspath(text)


def _named(bucket: str, path: str, number: int | None, series: str, home: str) -> Named:
    return Named(bucket + path, number, bucket + series, bucket + home)


def _number(pattern: re.Pattern[str], part: str) -> int:
    match = pattern.fullmatch(part)
    return int(match[2]) if match else 0


def _stem(pattern: re.Pattern[str], part: str) -> str:
    match = pattern.fullmatch(part)
    return (match and match[1] or "") + "#"
