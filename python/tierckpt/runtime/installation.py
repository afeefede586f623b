# SPDX-License-Identifier: Apache-2.0
"""Where the library and the programs that were installed with this package are."""

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]

LIBRARY = _PACKAGE / "lib" / "libtierckpt.so"
PROGRAMS = _PACKAGE / "bin"
