# SPDX-License-Identifier: Apache-2.0
"""Each symptom in docs/troubleshooting.md is printed by the code: the longest of the fixed parts of its text stands in
a string of the sources. Texts are composed of several strings, so not all parts can be looked for."""

import pathlib
import re
import sys

_JOINED = re.compile(r'"\s*\\?\n\s*f?"')  # a string that goes on in the next line
_MACRO = re.compile(r'" [A-Z]\w+ "')  # such as PRIu64, or the name of a program
# What differs from case to case, or stands in another string.
_HOLE = re.compile(
    r"\.\.\.|[:;(),\"]|\b[A-Z]\b(?:\.[A-Z]\b)?|\b[a-z]?\d+\b|\b[nxy]\b|\b(?:eth9|save_dir)\b|<\w+>|\S*tierckpt\S*"
)


def source_text(top):
    files = [f for folder in ("runtime", "tiers", "recovery", "python") for f in sorted((top / folder).rglob("*.*"))]
    text = "\n".join(f.read_text(encoding="utf-8") for f in files if f.suffix in (".c", ".h", ".py"))
    return " ".join(_MACRO.sub("", _JOINED.sub("", text)).split())


def symptoms(page):
    """The texts in code spans of the first line of each entry; words alone are names of keys and commands."""
    for entry in re.findall(r"^- (`.*(?:\n  (?! *-).*)*)", page, re.MULTILINE):
        for text in re.findall(r"`([^`]+)`", " ".join(entry.split())):
            if text.count(" ") > 1:
                yield text


top = pathlib.Path(sys.argv[1])
sources = source_text(top)
unknown = [text for text in symptoms((top / "docs/troubleshooting.md").read_text(encoding="utf-8"))
           if max((part.strip() for part in _HOLE.split(text)), key=len) not in sources]
for text in unknown:
    print(f"docs/troubleshooting.md: nothing prints this any more: {text}")
sys.exit(bool(unknown))
