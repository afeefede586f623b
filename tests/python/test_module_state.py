# SPDX-License-Identifier: Apache-2.0
"""Modules with get_extra_state(): their values other than tensors belong to the model."""

import pytest
import torch
from torch import nn

import tierckpt
from tierckpt.state.module_state import blobs_of


class Counting(nn.Linear):
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.count = 0

    def forward(self, x):
        self.count += 1
        return super().forward(x)

    def get_extra_state(self):
        return {"count": self.count}

    def set_extra_state(self, state):
        self.count = state["count"]


def make(site, *modules):
    model = nn.Sequential(*modules)
    return model, tierckpt.init(model=model, config=site.config)


def save_after(site, passes, **how):
    model, checkpoint = make(site, nn.Linear(3, 3), Counting(3, 3))
    for _ in range(passes):
        model(torch.ones(1, 3))
    checkpoint.save_checkpoint(1, **how)
    checkpoint.wait("drained" if how else "committed")
    checkpoint.close(job_done=False)


def test_extra_state_is_restored(site):
    save_after(site, 3)
    model, checkpoint = make(site, nn.Linear(3, 3), Counting(3, 3))
    assert checkpoint.load_checkpoint() == 1
    checkpoint.close()
    assert model[1].count == 3


def test_an_evaluation_gets_it_too(site):
    save_after(site, 3, to_storage=True)
    model = nn.Sequential(nn.Linear(3, 3), Counting(3, 3))
    result = tierckpt.load(model, config=site.config)
    assert model[1].count == 3 and "model" in result.loaded


def test_of_other_modules_it_is_refused_and_nothing_changed(site):
    save_after(site, 3)
    model, checkpoint = make(site, Counting(3, 3), nn.Linear(3, 3))
    before = model[0].weight.clone()
    with pytest.raises(tierckpt.LayoutError, match="the extra state of the model, module '0', is here and was not "
                                                      "saved"):
        checkpoint.load_checkpoint()
    checkpoint.close()
    assert model[0].count == 0 and torch.equal(model[0].weight, before)


def test_a_module_that_comes_later_needs_a_refresh(site):
    model, checkpoint = make(site, nn.Linear(3, 3))
    assert checkpoint.save_checkpoint(1)
    model[0] = Counting(3, 3)
    assert "the extra state of module '0' came into the model" in checkpoint.save_checkpoint(2).reason
    checkpoint.refresh()
    assert checkpoint.save_checkpoint(3)
    checkpoint.close()


class OnlyGetting(nn.Linear):
    def get_extra_state(self):
        return {"version": 1}


def test_a_module_that_takes_no_state_is_asked_for_none(site):
    """As load_state_dict() does."""
    model, checkpoint = make(site, OnlyGetting(3, 3))
    checkpoint.save_checkpoint(1)
    checkpoint.wait("committed")
    assert checkpoint.load_checkpoint() == 1
    checkpoint.close()


def chunks():
    """Returns the parts of a model as a framework splits it, each with its prefix."""
    return [("vpp0.", nn.Sequential(Counting(3, 3))), ("vpp1.", nn.Sequential(nn.Linear(3, 3), Counting(3, 3)))]


def test_of_several_parts_each_module_gets_its_own():
    parts = chunks()
    blob, = blobs_of(parts)
    saved = {"vpp0.0": {"count": 4}, "vpp1.1": {"count": 5}}
    blob.fits(saved)
    blob.apply(saved)
    assert [parts[0][1][0].count, parts[1][1][1].count] == [4, 5]
    assert blob.capture() == saved


def test_there_is_nothing_to_save_of_modules_that_have_tensors_alone():
    assert blobs_of([("", nn.Linear(3, 3))]) == []


def test_a_rank_chooses_what_it_has_from_what_others_saved():
    blob, = blobs_of(chunks())
    saved = [{"vpp1.1": {"count": 1}, "another": {}}, {"vpp1.1": {"count": 2}, "vpp0.0": {"count": 3}}]
    mine = blob.choose(iter(saved))
    assert mine == {"vpp0.0": {"count": 3}, "vpp1.1": {"count": 1}}
    with pytest.raises(tierckpt.LayoutError, match="module 'vpp0.0', is here and was not saved"):
        blob.fits(blob.choose(iter([{"vpp1.1": {}}])))
