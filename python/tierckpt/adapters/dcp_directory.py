# SPDX-License-Identifier: Apache-2.0
"""The directory that a checkpoint id names: the files of a published version, as hard links.

So it takes no space of its own, and stays when the version is pruned. It appears whole or not at all. A new checkpoint
of the same id replaces the files of the old one and leaves all others. An id in a store of objects has no directory."""

import ctypes
import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Container
from pathlib import Path

from .. import errors
from ..runtime.native import Version
from ..runtime.settings import is_url

log = logging.getLogger("tierckpt")

_MANIFEST, _METADATA = "manifest.json", ".metadata"
_OF_VERSION = b".safetensors"  # in the names of the files that a .metadata of ours lists
_AT_FDCWD, _EXCHANGE = -100, 2
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def version_at(path: str | os.PathLike[str]) -> tuple[str, Version] | None:
    """(job, version) of the checkpoint in this directory; None if it has none of ours. Raises IoError if that cannot be
    read."""
    if is_url(path):
        return None
    try:
        _finish(Path(os.path.realpath(path)))
        manifest = json.loads((Path(path) / _MANIFEST).read_bytes())
        return manifest["job"], Version(manifest["term"], manifest["step"])
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.IoError(f"{path}: {_MANIFEST} cannot be read: {error}") from error


def is_of_torch(path: str | os.PathLike[str]) -> bool:
    """Whether torch.distributed.checkpoint was the last to write this directory. place() leaves none of its files, but
    a version may have a .metadata of its own, which torch replaces by another one. Raises IoError if it cannot be read.
    """
    if is_url(path):
        return False
    found = Path(path) / _METADATA
    try:
        size = found.stat().st_size
        ours = json.loads((Path(path) / _MANIFEST).read_bytes()).get("metadata", {})
        return ours.get("bytes") != size or _OF_VERSION not in found.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return found.exists()
    except (OSError, ValueError, AttributeError) as error:
        raise errors.IoError(f"{path}: {_MANIFEST} and {_METADATA} cannot be read: {error}") from error


def place(version: str | os.PathLike[str], path: str | os.PathLike[str], only: Container[str] | None = None) -> None:
    """Makes the directory `path` of the files of a version, or of its manifest and `only` these of its files. Raises
    IoError if it cannot be made, ConfigError if it is on another file system."""
    target = Path(os.path.realpath(path))  # a link stays, and its target is the directory
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _finish(target)
        made = _sibling(target, "new")
        shutil.rmtree(made, ignore_errors=True)  # of a process that was killed
        made.mkdir()
        try:
            for file in sorted(Path(version).iterdir()):
                if only is None or file.name == _MANIFEST or file.name in only:
                    os.link(file, made / file.name, follow_symlinks=False)
            _sync(made)
            _put(made, target)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            raise
        _sync(target.parent)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise other_file_system(str(path), str(version)) from error
        raise errors.IoError(f"{path}: the files of {version} cannot be linked there: {error}") from error


def assemble(parts: list[str], path: str) -> None:
    """Makes the directory `path` of the files of all these directories. Raises IoError."""
    try:
        shutil.rmtree(path, ignore_errors=True)  # of a process that was killed
        os.mkdir(path)
        for part in parts:
            for file in Path(part).iterdir():
                if _is_part_of_a_checkpoint(file.name) and not (Path(path) / file.name).exists():
                    os.link(file, Path(path) / file.name, follow_symlinks=False)
    except OSError as error:
        raise errors.IoError(f"{path}: the files of {', '.join(parts)} cannot be linked there to be read together: "
                             f"{error}") from error


def other_file_system(path: str, save_dir: str) -> errors.ConfigError:
    return errors.ConfigError(f"checkpoint_id {path} is on another file system than save_dir {save_dir}, so that they "
                              "cannot share files: give a save_dir on the same one, or none")


def _sibling(target: Path, what: str) -> Path:
    name = hashlib.blake2b(os.fsencode(target.name), digest_size=6).hexdigest()  # of a length that is always allowed
    return target.parent / f".tierckpt-{what}-{name}"


def _put(made: Path, target: Path) -> None:
    """Moves a new directory to its place."""
    if not target.is_dir():
        os.rename(made, target)
        return
    old = _sibling(target, "old")
    log.info("%s: the checkpoint that is there is replaced", target)
    if _exchange(made, target):
        os.rename(made, old)
    else:  # not every file system can do it at once
        os.rename(target, old)
        os.rename(made, target)
    _finish(target)


def _finish(target: Path) -> None:
    """Finishes a replacement, which may have been interrupted in another process."""
    old = _sibling(target, "old")
    if not old.is_dir():
        return
    if not target.exists():
        os.rename(old, target)
        return
    for file in old.iterdir():
        if not _is_part_of_a_checkpoint(file.name) and not (target / file.name).exists():
            os.rename(file, target / file.name)
    shutil.rmtree(old)


def _is_part_of_a_checkpoint(name: str) -> bool:
    return name in (_MANIFEST, _METADATA) or name.endswith(".distcp") or \
        (name.startswith("shard-") and name.endswith(".safetensors"))


def _exchange(one: Path, other: Path) -> bool:
    """Exchanges two directories at once; false if this file system cannot."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        return False
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number not in _NO_EXCHANGE:
        raise OSError(number, os.strerror(number), str(other))
    return False


def _sync(directory: Path) -> None:
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
