# SPDX-License-Identifier: Apache-2.0
"""Flips a byte in a committed snapshot in an agent's memory, through the agent's own descriptors. The layout of a
segment is in docs/formats.md. Digests are made after a trainer has sealed its slot; only a slot that has them is hit,
since before that the flipped byte would be what was saved."""

import os
import signal
import struct
from contextlib import contextmanager

MEMFD = "/memfd:tierckpt (deleted)"
MAGIC = b"TckSlot1"
FORMAT = 3
SEALS_BYTES = 4096  # at the end of the file with the headers
VERIFIED = 4


def _table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_CRC32C = _table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = (crc >> 8) ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def header_of(page):
    """The fields of a header page, or None. Its own CRC is not looked at: the caller compares two readings."""
    if page[:8] != MAGIC:
        return None
    if struct.unpack_from("<I", page, 12)[0] != FORMAT:
        raise RuntimeError(f"slot headers are not of format {FORMAT}: tests/soak/slots.py needs to learn the new one")
    job = struct.unpack_from("<H", page, 24)[0]
    at = 26 + job
    slot, count, stride, size = struct.unpack_from("<IIQQ", page, at + 16)
    term, step, state = struct.unpack_from("<QQB", page, at + 72)
    return {"sequence": struct.unpack_from("<Q", page, 16)[0], "slot": slot, "count": count, "stride": stride,
            "size": size, "version": (term, step), "state": state, "committed": page[at + 109] == 1}


class Files:
    """The memory files of an agent: those with headers, and those with images, by inode."""

    def __init__(self, pid):
        self.metas, self.images = {}, {}
        folder = f"/proc/{pid}/fd"
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            try:
                if os.readlink(path) != MEMFD:
                    continue
                inode = os.stat(path).st_ino
                with open(path, "rb", buffering=0) as file:
                    head = file.read(8)
                    second = os.pread(file.fileno(), 8, 4096)
            except FileNotFoundError:
                continue
            (self.metas if MAGIC in (head, second) else self.images)[inode] = path


def _headers(path):
    """(header, CRC of the first chunk) of each slot."""
    found = []
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        pages = [header_of(os.pread(file.fileno(), 4096, at)) for at in (0, 4096)]
        count = next((page["count"] for page in pages if page), 0)
        for slot in range(count):
            at = (size - SEALS_BYTES) // count * slot
            pages = [header_of(os.pread(file.fileno(), 4096, at + page)) for page in (0, 4096)]
            pages = [page for page in pages if page]
            if any(page["slot"] != slot for page in pages):
                raise RuntimeError("slot headers do not lie where tests/soak/slots.py looks for them")
            if pages:
                newest = max(pages, key=lambda page: page["sequence"])
                found.append((newest, struct.unpack("<I", os.pread(file.fileno(), 4, at + 8192))[0]))
    return found


def _image_of(files, meta, header, crc):
    """The file whose slot has these bytes: the two of a segment are made one after the other, the nearest is tried
    first."""
    for inode in sorted(files.images, key=lambda inode: abs(inode - meta))[:4]:
        with open(files.images[inode], "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size == header["count"] * header["stride"] and \
                    crc32c(os.pread(file.fileno(), min(header["size"], 4 << 20), header["slot"] * header["stride"])) == crc:
                return files.images[inode]
    return None


@contextmanager
def _stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _flip(path, at):
    with open(path, "r+b", buffering=0) as file:
        byte = os.pread(file.fileno(), 1, at)
        os.pwrite(file.fileno(), bytes([byte[0] ^ 1]), at)


def damage(pid, chance):
    """Flips one byte of a copy of the newest committed version. Returns (version, slot), or None if none was hit."""
    files = Files(pid)
    committed = [(header, crc, meta) for meta, path in files.metas.items() for header, crc in _headers(path)
                 if header["state"] == VERIFIED and header["committed"]]
    if not committed:
        return None
    newest = max(header["version"] for header, _, _ in committed)
    committed = sorted((c for c in committed if c[0]["version"] == newest), key=lambda c: c[2])
    header, crc, meta = committed[chance % len(committed)]
    image = _image_of(files, meta, header, crc)
    if image is None:
        return None
    with _stopped(pid):  # so that what it frees or fills next is not hit
        if not any(now == header for now, _ in _headers(files.metas[meta])):
            return None
        _flip(image, header["slot"] * header["stride"] + chance * 7919 % header["size"])
    return newest, header["slot"]
