# SPDX-License-Identifier: Apache-2.0
"""Optimizers that keep their state as torch allows it, and hardly anyone does."""

import pytest
import torch

import tierckpt
from test_surprises import assert_equal, mlp, save, train
from tierckpt.state.statetree import join, rest_of, tensors_in


class Momentum(torch.optim.Optimizer):
    """Where it keeps its numbers is what differs below."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def factor(self):
        return 1.0

    def state_of(self, param):
        return self.state[param]

    @torch.no_grad()
    def step(self):
        factor = self.factor()
        for param in self.param_groups[0]["params"]:
            state = self.state_of(param)
            state.setdefault(0, torch.zeros_like(param)).mul_(0.9).add_(param.grad)
            state[1] = state.get(1, 0) + 1
            param.sub_(state[0], alpha=factor * 0.1 / state[1])


class Counting(Momentum):
    """A count and an average that belong to no parameter."""

    def factor(self):
        self.state["steps"] = self.state.get("steps", 0) + 1
        self.state["all"].setdefault("average", torch.zeros(2)).add_(self.state["steps"])
        return 1 / (self.state["steps"] + self.state["all"]["average"].sum().item())


class Plain(torch.optim.Optimizer):
    """A tensor, and no dict of tensors, for each parameter."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for param in self.param_groups[0]["params"]:
            self.state[param] = self.state[param] + param.grad if param in self.state else param.grad.clone()


@pytest.mark.parametrize("make", [Momentum, Counting])
def test_state_under_keys_that_are_no_names_comes_back(site, make):
    model = mlp()
    optimizer = make(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
    for step in (1, 2, 3):
        train(model, optimizer)
        assert save(checkpoint, step)
    checkpoint.close(job_done=False)
    again = mlp(1)
    other = make(again.parameters())
    checkpoint = tierckpt.init(model=again, optimizer=other, config=site.config)
    assert checkpoint.load_checkpoint() == 3
    assert_equal(other.state_dict()["state"], optimizer.state_dict()["state"])
    train(model, optimizer)
    train(again, other)
    checkpoint.close()
    assert_equal(again.state_dict(), model.state_dict())


def test_state_that_belongs_to_no_parameter_and_came_later_goes_with_a_load(site):
    model = mlp()
    optimizer = Momentum(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
    train(model, optimizer)
    assert save(checkpoint, 1)
    optimizer.state["steps"] = 7
    assert checkpoint.load_checkpoint() == 1
    checkpoint.close()
    assert "steps" not in optimizer.state


def test_a_state_that_is_no_dict_is_refused_by_name(site):
    model = mlp()
    with pytest.raises(tierckpt.InvalidArgumentError, match="Plain keeps a Tensor as the state of a parameter"):
        tierckpt.init(model=model, optimizer=Plain(model.parameters()), config=site.config)


def test_tensors_whose_paths_are_equal_are_kept_apart():
    state = {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}, 0: torch.full((1,), 2.0), "0": torch.full((1,), 3.0)}
    tensors = tensors_in(state)
    again = join(rest_of(state), tensors.__getitem__)
    assert len(tensors) == 4
    assert again["a"]["b"] is state["a"]["b"] and again["0"] is state["0"]
    assert again.get(0, tensors.get("0")) is state[0]
