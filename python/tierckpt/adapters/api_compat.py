# SPDX-License-Identifier: Apache-2.0
"""Whether the functions of a framework are still those that its adapter was written for.

An adapter lists what it wraps or reads, with the parameters that it needs. If something is missing or has changed, the
adapter stays off, one warning says so, and training continues without it."""

import importlib
import importlib.metadata
import inspect
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

log = logging.getLogger("tierckpt")


class Requirement(Protocol):
    """Something that an adapter relies on."""

    def fault(self) -> str | None: ...


@dataclass(frozen=True)
class RequiredApi:
    """A function or another object of a framework. `where` is "module:attribute.attribute"; `parameters` are those that
    it must have, in this order; None: its parameters do not matter."""

    where: str
    parameters: tuple[str, ...] | None = None

    def fault(self) -> str | None:
        """What is wrong with it; None if nothing is."""
        module, _, path = self.where.partition(":")
        try:
            found: Any = importlib.import_module(module)
            for name in path.split("."):
                found = getattr(found, name)
        except (ImportError, AttributeError) as error:
            return f"{self.where} is not there ({error})"
        if self.parameters is None:
            return None
        present = tuple(inspect.signature(found).parameters)
        wanted = iter(present)
        if all(name in wanted for name in self.parameters):
            return None
        return f"{self.where} has the parameters ({', '.join(present)}), known are ({', '.join(self.parameters)})"


def version_of(distribution: str) -> str:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "of unknown version"


@cache
def _say_once(text: str) -> None:
    log.warning("%s", text)


def usable(adapter: str, distribution: str, required: Iterable[Requirement]) -> bool:
    """Whether all are as the adapter knows them. If not, one warning names the first that is not and the framework's
    version, and says that nothing will be saved."""
    fault = next(filter(None, (one.fault() for one in required)), None)
    if fault is not None:
        _say_once(f"{adapter} is off, nothing will be saved: {distribution} {version_of(distribution)} is not known "
                  f"to it: {fault}")
    return fault is None
