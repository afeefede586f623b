# SPDX-License-Identifier: Apache-2.0
"""Makes a load find damage after it has begun to write, by changing what this process has mapped in between."""

import ctypes
import re

import pytest
import torch

from tierckpt.state.blobs import BlobTable

PATTERN = 1234.5678
"""The weights that are damaged have this value."""


def damage_slots():
    """Flips a bit of the weights in each slot that this process has mapped."""
    flipped = 0
    pattern = bytes(torch.tensor([PATTERN] * 16).numpy().tobytes())
    with open("/proc/self/maps", encoding="ascii") as maps:
        for line in maps:
            found = re.match(r"([0-9a-f]+)-([0-9a-f]+) rw-s .*/memfd:tierckpt", line)
            if found is None:
                continue
            first, end = (int(number, 16) for number in found.groups())
            at = ctypes.string_at(first, end - first).find(pattern)
            if at >= 0:
                ctypes.c_ubyte.from_address(first + at).value ^= 1
                flipped += 1
    return flipped


def tear(load, monkeypatch, match="hold parts of several states: do not train with them"):
    """The damage is done after the checks by the agent and of the blobs, while a load asks whether the blobs fit."""
    check, flipped = BlobTable.check, []

    def check_and_damage(blobs, client):
        check(blobs, client)
        flipped.append(damage_slots())

    with monkeypatch.context() as patch:
        patch.setattr(BlobTable, "check", check_and_damage)
        with pytest.raises(BaseException, match=match) as raised:
            load()
    assert len(flipped) == 1 and flipped[0] > 0, flipped
    return raised.value
