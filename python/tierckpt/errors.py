# SPDX-License-Identifier: Apache-2.0
"""One exception per status of the C library. Wrong use that Python finds itself raises the same ones."""


class Error(Exception):
    """A call failed. `status` is the number in tierckpt.h."""

    status = None


class InvalidArgument(Error):
    status = -1


class NoMemory(Error):
    status = -2


class IoError(Error):
    status = -3


class NotFound(Error):
    status = -4


class Busy(Error):
    """Refused now, may succeed later."""

    status = -5


class TimedOut(Error):
    status = -6


class Canceled(Error):
    """The version was refused or aborted; a later one can still succeed."""

    status = -7


class Corrupt(Error):
    status = -8


class NoSpace(Error):
    status = -9


class Unreachable(Error):
    status = -10


class Unsupported(Error):
    status = -11


class ProtocolError(Error):
    status = -12


class LayoutError(Error):
    """What training holds now differs from what was registered or saved."""

    status = -13


class Unrecoverable(Error):
    """Something was saved, but no version is complete in any tier."""

    status = -14


class ConfigError(Error):
    status = -15


class Denied(Error):
    status = -16


class Exists(Error):
    status = -17


class InternalError(Error):
    status = -18


REFRESH = "call ckpt.refresh() on every rank"
"""The remedy for a layout that has changed."""

_BY_STATUS = {kind.status: kind for kind in Error.__subclasses__()}


def from_status(status: int, text: str) -> Error:
    """The exception for a status of the library."""
    error = _BY_STATUS.get(status, Error)(text)
    error.status = status
    return error


def as_status(error: Exception) -> tuple[int, str]:
    """In a form that can be sent to another rank, where from_status makes an exception of it."""
    return getattr(error, "status", None) or IoError.status, f"{type(error).__name__}: {error}"
