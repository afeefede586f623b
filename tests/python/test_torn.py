# SPDX-License-Identifier: Apache-2.0
"""A load that finds damage after it has begun to write into model and optimizer: training on is made impossible."""

import pytest
import torch
from torch import nn

import tearing
import tierckpt
from tearing import PATTERN


def make(site, capacity=None, **overrides):
    model = nn.Linear(3000, 10)
    with torch.no_grad():
        model.weight.fill_(PATTERN)
    return model, tierckpt.init(model=model, extra_state={"at": 1}, config=site.config, overrides=overrides,
                                capacity=capacity)


def tear(checkpoint, monkeypatch):
    assert isinstance(tearing.tear(checkpoint.load_checkpoint, monkeypatch), tierckpt.UnrecoverableError)


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


def test_records_torn_by_a_load_with_the_saved_capacities_stay_torn(site, monkeypatch):
    _, checkpoint = make(site)
    assert checkpoint.save_checkpoint(1)
    checkpoint.wait("committed")
    checkpoint.close(job_done=False)
    _, checkpoint = make(site, {"extra_state": 1 << 20})
    tear(checkpoint, monkeypatch)
    assert checkpoint.health().records_torn
    with pytest.raises(tierckpt.CorruptError, match="step 2 is not saved: a restore failed"):
        checkpoint.save_checkpoint(2)
    checkpoint.filled_elsewhere()
    assert checkpoint.save_checkpoint(3)
    checkpoint.wait("committed")
    checkpoint.close()


class Unforeseen(torch.optim.Optimizer):
    """Its state cannot be known before its first step."""

    def __init__(self, model):
        self.allowed = False
        super().__init__(model.parameters(), {})

    def step(self):
        if not self.allowed:
            raise RuntimeError("not yet")
        for group in self.param_groups:
            for parameter in group["params"]:
                self.state[parameter]["sum"] = torch.ones_like(parameter)


def test_a_load_after_one_that_tore_the_records_is_of_the_registered_layout(site, monkeypatch):
    """The optimizer gets its state in between; registering it would forget that the records are torn."""
    model, checkpoint = make(site)
    assert checkpoint.save_checkpoint(1)
    checkpoint.wait("committed")
    checkpoint.close(job_done=False)
    optimizer = Unforeseen(model)
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, extra_state={"at": 1}, config=site.config)
    tear(checkpoint, monkeypatch)
    optimizer.allowed = True
    optimizer.step()
    assert checkpoint._registration.pending and checkpoint._registration.ripe()
    with pytest.raises(tierckpt.CorruptError, match="step 2 is not saved: a restore failed"):
        checkpoint.save_checkpoint(2)
    with pytest.raises(tierckpt.UnrecoverableError, match="do not train with them"):
        checkpoint.load_checkpoint()
    checkpoint.filled_elsewhere()
    assert checkpoint.save_checkpoint(3)
    assert not checkpoint._registration.pending
    checkpoint.wait("committed")
    checkpoint.close()
