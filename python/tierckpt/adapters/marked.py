# SPDX-License-Identifier: Apache-2.0
"""Directories of checkpoints that Tierckpt may delete: a marker in each of them says that it has created it."""

import logging
import os
import re
import shutil
from pathlib import Path

from .. import errors

log = logging.getLogger("tierckpt")

MARKER = ".tierckpt"
"""A file in each directory that Tierckpt has created. Only such directories are ever deleted."""

_TRASH = "trash-"
_COMPLETE = "complete\n"


def mark(directory: Path, text: str = "") -> None:
    (directory / MARKER).write_text(text)


def text_of_mark(directory: Path) -> str:
    """Empty if there is no marker."""
    try:
        return (directory / MARKER).read_text()
    except (FileNotFoundError, NotADirectoryError):
        return ""


def mark_complete(directory: Path) -> None:
    """For directories that are not renamed when they are complete."""
    (directory / MARKER).write_text(_COMPLETE)


def _is_cut_off(directory: Path) -> bool:
    return (directory / MARKER).read_text() != _COMPLETE


def is_marked(directory: Path) -> bool:
    return (directory / MARKER).is_file()


def delete(path: Path, why: str) -> None:
    """Renames it first, so that its remains are not mistaken for a checkpoint."""
    if not is_marked(path):
        raise errors.InternalError(f"{path} is not ours to delete")
    log.info("deleting %s: %s", path, why)
    trash = path.with_name(f"{_TRASH}{path.name}")
    if trash.exists():
        empty(trash)
    os.rename(path, trash)
    empty(trash)


def empty(trash: Path) -> None:
    """Deletes the marker last: while anything is left, the marker says that it is ours."""
    for path in trash.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name != MARKER:
            path.unlink()
    shutil.rmtree(trash)


def empty_trash(directory: Path) -> None:
    """Deletes what a deletion that was cut off has left below this directory."""
    for trash in directory.glob(f"{_TRASH}*"):
        if is_marked(trash):
            empty(trash)


def delete_old(directory: Path, prefix: str, keep: int, current: int) -> None:
    """Deletes the directories <prefix><number> that have our marker, apart from the newest `keep` of them (0: all) up
    to the current one. Later ones may still be in the making. The current one stays in any case."""
    ours = _marked_up_to(directory, prefix, current)
    for number in list(ours)[:-keep] if keep > 0 else []:
        if number != current:
            delete(ours[number], f"max_ckpt_num is {keep}")


def delete_cut_off(directory: Path, prefix: str, current: int) -> None:
    """The same for those before the current one that were never marked as complete."""
    for number, path in _marked_up_to(directory, prefix, current).items():
        if number != current and _is_cut_off(path):
            delete(path, "a save that was cut off")


def _marked_up_to(directory: Path, prefix: str, current: int) -> dict[int, Path]:
    """By their numbers, in order."""
    found = (re.fullmatch(rf"{prefix}(\d+)", path.name) for path in directory.glob(f"{prefix}*"))
    paths = {int(match[1]): directory / match[0] for match in found if match and int(match[1]) <= current}
    return {number: paths[number] for number in sorted(paths) if is_marked(paths[number])}
