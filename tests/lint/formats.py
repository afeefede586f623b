"""Each message of the protocols, and each table of fields, stands in docs/formats.md in the order of its bytes."""

import pathlib
import re
import sys

# file, its enum of messages, what stands before and after their table, the field with which each message begins
PROTOCOLS = [
    ("runtime/base/message.h", "message_type", "\n## Client and agent", "\n## ", "seq"),
    ("runtime/agent/state/wire.h", "wire_type", "\n**Messages** [", "\n**", "term"),
    ("tiers/peer_wire.h", "wire_kind", "\n**Handshake** [", "\n**Chunks**", ""),
]
# file, a table of fields that is no message, where its description begins, which ends with a blank line
TABLES = [
    ("runtime/base/world.h", "NODE_INFO_FIELDS", "\n**world** ["),
    ("runtime/base/world.h", "WORLD_SHARD_FIELDS", "\n**world** ["),
    ("runtime/base/world.h", "RANK_HELLO_FIELDS", "A **rank hello** is"),
    ("runtime/core/protocol.h", "DECISION_FIELDS", "\n**decision** ["),
    ("runtime/agent/state/hard_state.h", "KEPT_FIELDS", "\n| 12 | 8 | sequence |"),
    ("recovery/inventory.h", "NODE_INVENTORY_FIELDS", "\n**Inventory** ["),
    ("recovery/inventory.h", "HOLDING_FIELDS", "\n**Inventory** ["),
    ("tiers/peer_wire.h", "PEER_PART_FIELDS", "\n**Control frames.**"),
    ("tiers/peer_wire.h", "PEER_CHUNK_FIELDS", "\n**Chunks** go"),
]
NUMBERS = {kind: kind for kind in ("u8", "u16", "u32", "u64", "i32", "str", "version")} | {
    "bool": "u8",
    "hash128": "hash",
}
NAME_AT = {kind: 1 for kind in ("list", "owners", "part", "owned", "optional", "choice", "rest")} | {
    "view": 3,
    "few": 3,
}  # of the other kinds: 0


def macros(code):
    """The name of each table -> its fields, each a kind and its arguments, those of tables within it included."""
    code = re.sub(r"/\*.*?\*/|\\\n", " ", code, flags=re.DOTALL)
    found = dict(re.findall(r"#define (\w+_FIELDS)\(F\)(.*)", code))

    def fields(macro):
        return re.sub(r"(\w+_FIELDS)\(F\)", lambda inner: fields(inner[1]), found[macro])

    return {macro: [re.split(r",\s*", one) for one in re.findall(r"\bF\(([^)]*)\)", fields(macro))] for macro in found}


def tables(code):
    """struct -> its fields, as of macros."""
    fields = macros(code)
    prefix = re.search(r"SCHEMA_(?:STRUCT|DECLARE)\((\w+)##name", code)[1]
    named = [(prefix + name, macro) for name, macro in re.findall(r"\bM\((\w+), (\w+_FIELDS),", code)]
    named += re.findall(r"SCHEMA_STRUCT\((\w+), (\w+_FIELDS)\)", code)
    return {name: fields[macro] for name, macro in named}


def wanted(structs, fields, typed=True):
    for kind, *arguments in fields:
        if kind == "constant":
            continue
        field = arguments[NAME_AT.get(kind, 0)].split(".")[-1]
        yield f"`{field}` {NUMBERS[kind]}" if typed and kind in NUMBERS else f"`{field}`"
        if kind == "list" and arguments[0] in structs:
            yield from wanted(structs, structs[arguments[0]])


def missing(text, fields):
    """Those that do not stand in the text, or not in their order."""
    at = 0
    for what in fields:
        found = text.find(what, at)
        if found < 0:
            yield what
        at = max(at, found + 1)


def complaints(code, enum, docs, first):
    structs, number, names = tables(code), 0, {}
    entries = re.search(rf"enum {enum} {{(.*?)}};", code, re.DOTALL)[1]
    for name, given, content, struct in re.findall(
        r"^ +[A-Z]+?_(\w+)(?: = (\d+))?,(?: +/\* (JSON|bytes|nothing|struct (\w+)))?", entries, re.MULTILINE
    ):
        number = int(given or number + 1)
        row = re.search(rf"^- \*\*{number} {name}\*\*(.*?)(?=^- |^$)", docs, re.MULTILINE | re.DOTALL)
        text = " ".join(row[1].split()) if row else ""
        described = row and struct in structs and f"as {names.setdefault(struct, name)}" not in text
        for what in missing(text, wanted(structs, structs[struct])) if described else ():
            if not what.startswith(f"`{first}` "):
                yield f"{name} lacks {what}, or has it at another place"
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
for file, table, begin in TABLES:
    docs = (top / "docs/formats.md").read_text().split(begin)
    text = re.split(r"\n\n(?!\|)", docs[1])[0] if len(docs) == 2 else ""
    typed = "\n|" not in text  # else the sizes stand in a column of their own
    fields = macros((top / file).read_text())[table]
    for what in missing(" ".join(text.split()), wanted({}, fields, typed)):
        print(f"docs/formats.md: {begin.strip()} lacks {what}, or has it at another place ({table} in {file})")
        bad = 1
sys.exit(bad)
