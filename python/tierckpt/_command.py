# SPDX-License-Identifier: Apache-2.0
"""The scripts `tierckpt`, `tierckptd` and `tierckpt-supervisor`: each becomes the program of its name that came with
this package. `tierckpt report` is Python's alone."""

import os
import sys
from typing import NoReturn

from .runtime.installation import PROGRAMS


def main() -> NoReturn:
    if sys.argv[1:2] == ["report"]:
        from .report.command import main as report

        sys.exit(report(sys.argv[2:]))
    _become("tierckpt")


def agent() -> NoReturn:
    _become("tierckptd")


def supervisor() -> NoReturn:
    _become("tierckpt-supervisor")


def _become(name: str) -> NoReturn:
    programs = os.environ.setdefault("TIERCKPT_BIN_DIR", str(PROGRAMS))
    program = os.path.join(programs, name)
    try:
        os.execv(program, [program, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"{name}: cannot start {program}: {error.strerror}")
