# SPDX-License-Identifier: Apache-2.0
"""Reads published versions without any code of the product and compares every number with what the trainers computed
(mix, fill and the seeds of tests/cluster/trainer.c)."""

import json
import re
import struct
from array import array
from functools import lru_cache
from pathlib import Path

MASK = (1 << 64) - 1
NAME = re.compile(r"v(\d{12})\.t(\d+)$")


def mix(x):
    x ^= x >> 33
    x = x * 0xFF51AFD7ED558CCD & MASK
    x ^= x >> 33
    x = x * 0xC4CEB9FE1A85EC53 & MASK
    return x ^ (x >> 33)


def seed_of(key, step, launch):
    name, number = key.rsplit(".", 1)
    factor = {"params": 1000003, "moments": 7777777}[name]
    return mix(factor * (int(number) + 1) & MASK) ^ mix(step) ^ mix(launch << 32 & MASK)


@lru_cache
def _lanes(count):
    """Every second number of a tensor of seed 0, the others, 1 in each lane, MASK in each lane: long integers with a lane
    of 128 bits for each, so that a sum carries into no other."""
    numbers = array("Q", (i * 0x9E3779B97F4A7C15 & MASK for i in range(count + count % 2)))
    ones = int.from_bytes(array("Q", (1, 0)) * (len(numbers) // 2), "little")
    whole = int.from_bytes(numbers, "little")
    return whole & ones * MASK, whole >> 64 & ones * MASK, ones, ones * MASK


def values(seed, count):
    """The bytes of `count` numbers, each 0x9E3779B97F4A7C15 more than the one before."""
    even, odd, ones, mask = _lanes(count)
    both = (even + seed * ones & mask) | (odd + seed * ones & mask) << 64
    return both.to_bytes(8 * (count + count % 2), "little")[:8 * count]


def versions(job_dir):
    """(step, term, path), oldest first."""
    found = []
    for path in Path(job_dir).iterdir() if Path(job_dir).exists() else ():
        match = NAME.match(path.name)
        if match:
            found.append((int(match[1]), int(match[2]), path))
    return sorted(found, key=lambda version: (version[1], version[0]))


def _tensors(path):
    data = path.read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + length])
    for key, entry in header.items():
        if key != "__metadata__" and not key.startswith("__pad_"):
            begin, end = entry["data_offsets"]
            yield key, data[8 + length + begin:8 + length + end]


def check(path, step, world, twins):
    """(launch that computed it, what is wrong with it or '')."""
    manifest = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
    origins, tensors = set(), {}
    for file in manifest["files"]:
        if (path / file["name"]).stat().st_size != file["bytes"]:
            return 0, f"{file['name']} has not its size"
        for key, data in _tensors(path / file["name"]):
            if key == "step":
                origins.add(struct.unpack_from("<QQ", data, 8))
            else:
                tensors[key] = data
    if len(origins) != 1:
        return 0, f"shards of {len(origins)} versions: {sorted(origins)}"
    saved, launch = origins.pop()
    if saved != step:
        return launch, f"holds step {saved}"
    wanted = {f"moments.{rank}" for rank in range(world)} | {f"params.{rank // twins}" for rank in range(world)}
    if set(tensors) != wanted:
        return launch, f"tensors missing or too many: {sorted(set(tensors) ^ wanted)}"
    for key, data in tensors.items():
        if values(seed_of(key, step, launch), len(data) // 8) != data:
            return launch, f"{key} is wrong"
    return launch, ""


def damage(path, how):
    """Damages one published version in one of four ways; says how."""
    files = sorted(path.glob("*.safetensors"))
    if how % 4 == 0:
        with open(files[how % len(files)], "r+b") as file:
            file.seek(how % (files[how % len(files)].stat().st_size - 1))
            byte = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([byte[0] ^ 1]))
        return "a byte flipped"
    if how % 4 == 1:
        with open(files[0], "r+b") as file:
            file.truncate(files[0].stat().st_size - 4096)
        return "a file cut"
    if how % 4 == 2 or len(files) < 2:
        (path / "manifest.json").unlink()
        return "manifest removed"
    aside = path / "aside"
    files[0].rename(aside)
    files[1].rename(files[0])
    aside.rename(files[1])
    return "two files exchanged"
