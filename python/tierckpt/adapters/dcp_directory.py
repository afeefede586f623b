# SPDX-License-Identifier: Apache-2.0
"""The directory that a checkpoint id names: the files of a published version, as hard links.

So it takes no space of its own, and stays when the version is pruned. It appears whole or not at all. A new checkpoint
of the same id replaces the files of the old one and leaves all others. An id in a store of objects has no directory."""

import contextlib
import ctypes
import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Container
from pathlib import Path
from typing import TypeVar

from .. import errors
from ..runtime.native import Version
from ..runtime.settings import is_url

log = logging.getLogger("tierckpt")

_T = TypeVar("_T")

_MANIFEST, _METADATA, _INDEX = "manifest.json", ".metadata", ".index"
_OF_VERSION = b".safetensors"  # in the names of the files that a .metadata of ours lists
_AT_FDCWD, _EXCHANGE = -100, 2
_NO_EXCHANGE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


def version_at(path: str | os.PathLike[str]) -> tuple[str, Version] | None:
    """(job, version) of the checkpoint in this directory; None if it has none of ours. Raises IoError if that cannot be
    read."""
    if is_url(path):
        return None
    try:
        return _seen(path, _version_in)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise errors.IoError(f"{path}: {_MANIFEST} cannot be read: {error}") from error


def _version_in(directory: Path) -> tuple[str, Version] | None:
    try:
        manifest = json.loads((directory / _MANIFEST).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    return manifest["job"], Version(manifest["term"], manifest["step"])


def is_of_torch(path: str | os.PathLike[str]) -> bool:
    """Whether torch.distributed.checkpoint was the last to write this directory. place() leaves none of its files, but
    a version may have a .metadata of its own, which torch replaces by another one. Raises IoError if it cannot be read.
    """
    if is_url(path):
        return False
    try:
        return _seen(path, lambda directory: _is_of_torch_in(directory) or None) is not None
    except (OSError, ValueError, AttributeError) as error:
        raise errors.IoError(f"{path}: {_MANIFEST} and {_METADATA} cannot be read: {error}") from error


def _is_of_torch_in(directory: Path) -> bool:
    found = directory / _METADATA
    try:
        size = found.stat().st_size
        ours = json.loads((directory / _MANIFEST).read_bytes()).get("metadata", {})
        return ours.get("bytes") != size or _OF_VERSION not in found.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return found.exists()


def present(path: str) -> str:
    """The directory in which version_at and is_of_torch found the checkpoint: that of the path, or the one that a save
    has moved aside, while the new one is not in its place."""
    if is_url(path):
        return path
    target = Path(os.path.realpath(path))
    old = _sibling(target, "old")
    if target.exists() or not old.is_dir():
        return path
    log.warning("%s: a save has moved the checkpoint aside and has not put the next one there: %s is loaded", path, old)
    return str(old)


def _seen(path: str | os.PathLike[str], look: Callable[[Path], _T | None]) -> _T | None:
    """What `look` finds in the directory of this path, or in the one that a save has moved aside.

    It changes nothing, although a save that was killed may have left a directory aside. Whether that save is dead
    cannot be known here: it may run on another machine, and locks do not work on every NFS. Only the next save of this
    path cleans up, since a path has one saver at a time. Until then what lies aside is read where it is."""
    target = Path(os.path.realpath(path))
    found = _unless_stale(look, target)
    if found is None:
        _refresh(target.parent)
        if not target.exists():
            found = _unless_stale(look, _sibling(target, "old"))
    # Another look, since the new directory may have taken its place between those two.
    return look(target) if found is None else found


def _unless_stale(look: Callable[[Path], _T | None], directory: Path) -> _T | None:
    """None also if another machine has just deleted the directory: NFS reports that as ESTALE."""
    try:
        return look(directory)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
        return None


def _refresh(directory: Path) -> None:
    """Opens the directory, so that an NFS client compares the names in it, which it caches, with those of the server.
    """
    with contextlib.suppress(OSError):
        os.close(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def place(version: str | os.PathLike[str], path: str | os.PathLike[str], only: Container[str] | None = None) -> None:
    """Makes the directory `path` of the files of a version, or of its manifest, its index and `only` these of its
    files. Raises IoError if it cannot be made, ConfigError if it is on another file system. That the one which it
    replaces cannot be deleted is a warning: the checkpoint is there."""
    target = Path(os.path.realpath(path))  # a link stays, and its target is the directory
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _clean_up(target)  # also so that the names that are needed here are free
        made = _sibling(target, "new")
        made.mkdir()
        try:
            for file in sorted(Path(version).iterdir()):
                if only is None or file.name in (_MANIFEST, _INDEX) or file.name in only:
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
    try:
        _clean_up(target)
    except OSError as error:
        log.warning("%s: the new checkpoint is there, but the one that it replaces cannot be deleted: %s. Delete it "
                    "before the next save of this id, which fails otherwise", path, error)


def assemble(parts: list[str], path: str) -> None:
    """Makes the directory `path` of the files of all these directories. Raises IoError."""
    try:
        shutil.rmtree(path, ignore_errors=True)  # of a process that was killed
        os.mkdir(path)
        for part in parts:
            for file in Path(present(part)).iterdir():
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
    """Moves a new directory to its place. What was there is then in one of its siblings."""
    if not target.is_dir():
        os.rename(made, target)
        return
    log.info("%s: the checkpoint that is there is replaced", target)
    if _exchange(made, target):
        return
    old = _sibling(target, "old")  # not every file system can do it at once
    os.rename(target, old)
    try:
        os.rename(made, target)
    except OSError:
        os.rename(old, target)
        raise


def _clean_up(target: Path) -> None:
    """Deletes what a save, also one that was killed, has left beside the directory. If there is no directory, the one
    that was moved aside is the checkpoint, and stays."""
    replaced = target.exists()
    _clear(_sibling(target, "new"), target)
    if replaced:
        _clear(_sibling(target, "old"), target)


def _clear(replaced: Path, target: Path) -> None:
    """Deletes a directory that was replaced, after files that are not part of the checkpoint have been moved to the new
    one. Another process may do the same at the same time."""
    names = []
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(replaced)
    for name in (_MANIFEST, _METADATA):
        (replaced / name).unlink(missing_ok=True)  # it is no longer a checkpoint, even if the rest remains
    for name in names:
        if _is_foreign(name) and not (target / name).exists():
            target.mkdir(exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                os.rename(replaced / name, target / name)
    shutil.rmtree(replaced, ignore_errors=True)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(replaced)  # raises if anything is left


def _is_foreign(name: str) -> bool:
    """NFS gives a file that is deleted while it is open a name .nfs..., and deletes it when it is closed."""
    return not _is_part_of_a_checkpoint(name) and not name.startswith(".nfs")


def _is_part_of_a_checkpoint(name: str) -> bool:
    return name in (_MANIFEST, _METADATA, _INDEX) or name.endswith(".distcp") or \
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
