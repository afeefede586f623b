# SPDX-License-Identifier: Apache-2.0
"""A load that finds damage after it has begun to write into model and optimizer: training on is made impossible."""

import ctypes
import re

import pytest
import torch
from torch import nn

import tierckpt

PATTERN = 1234.5678


def make(site, **overrides):
    model = nn.Linear(3000, 10)
    with torch.no_grad():
        model.weight.fill_(PATTERN)
    return model, tierckpt.init(model=model, config=site.config, overrides=overrides)


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


def tear(checkpoint, monkeypatch):
    """The damage is done after the checks by the agent and of the blobs, while a load asks whether the blobs fit."""
    check, flipped = checkpoint._blobs.check, []

    def check_and_damage(client):
        check(client)
        flipped.append(damage_slots())

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint._blobs, "check", check_and_damage)
        with pytest.raises(tierckpt.UnrecoverableError, match="hold parts of several states: do not train with them"):
            checkpoint.load_checkpoint()
    assert flipped == [1]


@pytest.mark.parametrize("fresh", ["off", "on"])
def test_a_load_that_fails_while_it_copies_is_no_fresh_start_and_stops_saves(site, monkeypatch, fresh):
    model, checkpoint = make(site, accept_fresh_start=fresh)
    assert checkpoint.save_checkpoint(1)
    checkpoint.wait("committed")
    tear(checkpoint, monkeypatch)
    assert checkpoint.health().records_torn
    with pytest.raises(tierckpt.CorruptError, match="step 2 is not saved: a restore failed"):
        checkpoint.save_checkpoint(2)
    with pytest.raises(tierckpt.CorruptError, match="a restore failed"):
        checkpoint.save_last(2)
    with pytest.raises(tierckpt.CorruptError, match="load a version first"):
        checkpoint.refresh(model=model)
    with pytest.raises(tierckpt.UnrecoverableError, match="do not train with them"):
        checkpoint.load_checkpoint()
    with torch.no_grad():
        model.weight.fill_(7)
    checkpoint.filled_elsewhere()
    assert not checkpoint.health().records_torn
    assert checkpoint.save_checkpoint(3)
    checkpoint.wait("committed")
    with torch.no_grad():
        model.weight.zero_()
    assert checkpoint.load_checkpoint() == 3
    assert (model.weight == 7).all()
    checkpoint.close()
