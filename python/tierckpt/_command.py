# SPDX-License-Identifier: Apache-2.0
"""The script `tierckpt`: becomes the command that was installed with this package. `report` is Python's alone."""

import os
import sys

from .runtime.installation import PROGRAMS


def main() -> None:
    if sys.argv[1:2] == ["report"]:
        from .report.command import main as report

        sys.exit(report(sys.argv[2:]))
    programs = os.environ.setdefault("TIERCKPT_BIN_DIR", str(PROGRAMS))
    command = os.path.join(programs, "tierckpt")
    try:
        os.execv(command, [command, *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"tierckpt: cannot start {command}: {error.strerror}")
