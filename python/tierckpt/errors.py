# SPDX-License-Identifier: Apache-2.0
"""One exception per status of the C library. Wrong use that Python finds itself raises the same ones."""


class Error(Exception):
    """A call failed."""

    status: int | None = None
    """The number of its status in tierckpt.h."""


class InvalidArgumentError(Error):
    """The call or its arguments are wrong."""

    status = -1


class NoMemoryError(Error):
    """Memory could not be allocated."""

    status = -2


class IoError(Error):
    """Reading or writing failed; it may succeed later."""

    status = -3


class NotFoundError(Error):
    """What was asked for is not there."""

    status = -4


class BusyError(Error):
    """Refused now, may succeed later."""

    status = -5


class TimedOutError(Error):
    """It took longer than allowed."""

    status = -6


class CanceledError(Error):
    """The version was refused or aborted; a later one can still succeed."""

    status = -7


class CorruptError(Error):
    """Bytes differ from what was written."""

    status = -8


class NoSpaceError(Error):
    """There is not enough room: in memory, on storage, or in what a value has reserved."""

    status = -9


class UnreachableError(Error):
    """The agent cannot be started or reached."""

    status = -10


class UnsupportedError(Error):
    """It cannot be saved or done by this build; the text says what can."""

    status = -11


class ProtocolError(Error):
    """The other side speaks another version of a format."""

    status = -12


class LayoutError(Error):
    """What training holds now differs from what was registered or saved."""

    status = -13


class UnrecoverableError(Error):
    """Something was saved, but no version is complete in any tier."""

    status = -14


class ConfigError(Error):
    """The configuration is wrong; the text names the key."""

    status = -15


class DeniedError(Error):
    """Rights are missing, or another start has taken the job over."""

    status = -16


class ExistsError(Error):
    """Trainers of another start of this job are alive, or the target is there already."""

    status = -17


class InternalError(Error):
    """A bug in Tierckpt."""

    status = -18


REFRESH = "call ckpt.refresh() on every rank"
"""The remedy for a layout that has changed."""

_BY_STATUS: dict[int | None, type[Error]] = {kind.status: kind for kind in Error.__subclasses__()}


def from_status(status: int, text: str) -> Error:
    """The exception for a status of the library."""
    error = _BY_STATUS.get(status, Error)(text)
    error.status = status
    return error


def as_status(error: Exception) -> tuple[int, str]:
    """In a form that can be sent to another rank, where from_status makes an exception of it."""
    return getattr(error, "status", None) or IoError.status, f"{type(error).__name__}: {error}"
