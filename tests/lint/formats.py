"""Each message of the protocols, and each of its fields, stands in docs/formats.md in the order of its bytes."""

import pathlib
import re
import sys

# file, its enum of messages, what stands before and after their table, the field with which each message begins
PROTOCOLS = [
    ("runtime/base/message.h", "message_type", "\n## Client and agent", "\n## ", "seq"),
    ("runtime/agent/state/wire.h", "wire_type", "\n**Messages** [", "\n**", "term"),
]
NUMBERS = {kind: kind for kind in ("u8", "u16", "u32", "u64", "i32", "str", "version")} | {
    "bool": "u8",
    "hash128": "hash",
}
NAME_AT = {"list": 1, "owners": 1, "part": 1, "owned": 1, "choice": 1, "view": 3}  # of the other kinds: 0


def tables(code):
    """struct -> its fields, each a kind and its arguments."""
    code = re.sub(r"/\*.*?\*/|\\\n", " ", code, flags=re.DOTALL)
    fields = dict(re.findall(r"#define (\w+_FIELDS)\(F\)(.*)", code))
    prefix = re.search(r"SCHEMA_STRUCT\((\w+)##name", code)[1]
    named = [(prefix + name, macro) for name, macro in re.findall(r"\bM\((\w+), (\w+_FIELDS),", code)]
    named += re.findall(r"SCHEMA_STRUCT\((\w+), (\w+_FIELDS)\)", code)
    return {
        name: [re.split(r",\s*", field) for field in re.findall(r"F\(([^)]*)\)", fields[macro])]
        for name, macro in named
    }


def wanted(structs, name):
    for kind, *arguments in structs[name]:
        field = arguments[NAME_AT.get(kind, 0)]
        yield f"`{field}` {NUMBERS[kind]}" if kind in NUMBERS else f"`{field}`"
        if kind == "list" and arguments[0] in structs:
            yield from wanted(structs, arguments[0])


def complaints(code, enum, docs, first):
    structs, number = tables(code), 0
    entries = re.search(rf"enum {enum} {{(.*?)}};", code, re.DOTALL)[1]
    for name, given, content, struct in re.findall(
        r"^ +[A-Z]+?_(\w+)(?: = (\d+))?,(?: +/\* (JSON|struct (\w+)))?", entries, re.MULTILINE
    ):
        number = int(given or number + 1)
        row = re.search(rf"^- \*\*{number} {name}\*\*(.*?)(?=^- |^$)", docs, re.MULTILINE | re.DOTALL)
        text = " ".join(row[1].split()) if row else ""
        at = 0
        for what in wanted(structs, struct) if row and struct in structs else ():
            found = text.find(what, at)
            if found < 0 and not what.startswith(f"`{first}` "):
                yield f"{name} lacks {what}, or has it at another place"
            at = max(at, found)
        if not content or (struct and struct not in (*structs, "msg_seq")):
            yield f"of {name} no table of fields is known: its comment in enum {enum} has to name the struct"
        if not row:
            yield f"there is no entry {number} {name}"


top, bad = pathlib.Path(sys.argv[1]), 0
for file, enum, begin, end, first in PROTOCOLS:
    docs = (top / "docs/formats.md").read_text().split(begin)[1].split(end)[0]
    for complaint in complaints((top / file).read_text(), enum, docs, first):
        print(f"docs/formats.md: {complaint} ({file})")
        bad = 1
sys.exit(bad)
