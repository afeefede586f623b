# SPDX-License-Identifier: Apache-2.0
"""latest_checkpointed_iteration.txt, the file by which Megatron-LM knows its newest checkpoint in a directory."""

from pathlib import Path

from ... import errors
from ..background_writer import write_durably

NAME = "latest_checkpointed_iteration.txt"


def tracked(directory: str | None) -> int | None:
    """The iteration that Megatron would load from a directory; None if there is none, 0 if it is not a number. Raises
    IoError if that cannot be read."""
    if not directory:
        return None
    path = Path(directory, NAME)
    try:
        text = path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise errors.IoError(f"{path}: {error.strerror}: it is not known what was saved there") from error
    return int(text) if text.isdigit() else 0


def found_in(directory: str | None) -> list[int] | None:
    """The iteration, and when it was written, in ns; None if there is none. Raises IoError."""
    iteration = tracked(directory)
    if directory is None or iteration is None:
        return None
    try:
        return [iteration, Path(directory, NAME).stat().st_mtime_ns]
    except OSError as error:
        raise errors.IoError(f"{directory}/{NAME}: {error.strerror}") from error


def track(directory: str, iteration: int, found: int | None = None) -> None:
    """Lets Megatron load this iteration, unless Megatron itself has saved a later one in the meantime.

    found: what the file named when this start began, if the training has gone back to an earlier iteration since: that
    is replaced, too. The file is replaced as a whole: what is left after a crash is the old one or the new one."""
    now = tracked(directory) or 0
    if iteration > now or now == found:
        write_durably(Path(directory, NAME), lambda path: Path(path).write_text(str(iteration)))
