# SPDX-License-Identifier: Apache-2.0
"""Finds table cells and paragraphs of markdown pages that are too long to be read: pages.py FILE..."""

import re
import sys
import textwrap
from pathlib import Path

CELL_MAX = 120  # characters, as they are read: a link counts as its text
LINES_MAX = 8
COLUMNS = 120

_FENCE = re.compile(r"\s*(```|~~~)")
_ITEM = re.compile(r"\s*(?:[-*+]|\d{1,2}\.)\s+")
_LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
_HTML_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


def as_read(text):
    return _LINK.sub(r"\1", text).replace("`", "").strip()


def cells(line):
    return [as_read(cell) for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def paragraphs(lines):
    """(number of the first line, lines) of each paragraph and list item; code and tables are left out."""
    begun, found, fenced, in_list = 0, [], False, False
    for number, line in enumerate([*lines, ""], 1):
        fence = _FENCE.match(line)
        item = _ITEM.match(line)
        indented_code = line.startswith("    ") and not found and not in_list
        outside = fence or fenced or not line.strip() or line.startswith(("#", "|")) or indented_code
        if found and (outside or item):
            yield begun, found
            found = []
        fenced = fenced != bool(fence)
        if line.strip() and not line.startswith(" "):
            in_list = bool(item)
        if not outside:
            begun = begun if found else number
            found.append(line.strip())


def complaints(path):
    lines = path.read_text(encoding="utf-8").split("\n")
    for number, line in enumerate(lines, 1):
        for cell in cells(line) if line.startswith("|") else ():
            if len(cell) > CELL_MAX:
                yield f"{path}:{number}: a table cell of {len(cell)} characters, more than {CELL_MAX}: {cell[:60]}..."
    for number, found in paragraphs(lines):
        wrapped = textwrap.wrap(as_read(" ".join(found)), COLUMNS)
        if max(len(wrapped), len(found)) > LINES_MAX:
            yield f"{path}:{number}: a paragraph of {len(wrapped)} lines, more than {LINES_MAX}: {wrapped[0][:60]}..."


if __name__ == "__main__":
    found = [complaint for name in sys.argv[1:] for complaint in complaints(Path(name))]
    print(*found, sep="\n")
    sys.exit(bool(found))
