# SPDX-License-Identifier: Apache-2.0
"""Optimizers that keep their state in allowed but unusual ways, and values that only a state_dict() has."""

import logging

import pytest
import torch
from torch import nn

import tierckpt
from test_surprises import assert_equal, mlp, save, train
from tierckpt.state.statetree import join, rest_of, tensors_in


class Momentum(torch.optim.Optimizer):
    """The base class; the subclasses keep their numbers in different places."""

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
    """Has a count and an average that belong to no parameter."""

    def factor(self):
        self.state["steps"] = self.state.get("steps", 0) + 1
        self.state["all"].setdefault("average", torch.zeros(2)).add_(self.state["steps"])
        return 1 / (self.state["steps"] + self.state["all"]["average"].sum().item())


class Plain(torch.optim.Optimizer):
    """Keeps a tensor instead of a dict of tensors for each parameter."""

    def __init__(self, params):
        super().__init__(params, {})

    @torch.no_grad()
    def step(self):
        for param in self.param_groups[0]["params"]:
            self.state[param] = self.state[param] + param.grad if param in self.state else param.grad.clone()


class Telling(Momentum):
    """Has a number that only its own state_dict() returns."""

    steps = 0

    def factor(self):
        self.steps += 1
        return 1 / self.steps

    def state_dict(self):
        return {**super().state_dict(), "steps": self.steps}


class Outer(torch.optim.SGD):
    """Presents the state of its inner optimizer as its own, like some implementations of Lookahead."""

    def __init__(self, params):
        super().__init__(params, lr=0.1)
        self.inner = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)

    def state_dict(self):
        return {**super().state_dict(), "fast_state": self.inner.state_dict()["state"]}


@pytest.mark.parametrize("make", [Momentum, Counting])
def test_state_under_keys_that_are_not_names_is_restored(site, make):
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


def test_adamw_decouples_its_weight_decay_after_it_has_taken_what_an_adam_saved(site):
    model = mlp()
    checkpoint = tierckpt.init(model=model, optimizer=torch.optim.Adam(model.parameters()), config=site.config)
    assert save(checkpoint, 1)
    checkpoint.close(job_done=False)
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
    assert checkpoint.load_checkpoint() == 1
    checkpoint.close()
    assert optimizer.param_groups[0]["decoupled_weight_decay"]


def test_tensors_whose_paths_are_equal_are_kept_apart():
    state = {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}, 0: torch.full((1,), 2.0), "0": torch.full((1,), 3.0)}
    tensors = tensors_in(state)
    again = join(rest_of(state), tensors.__getitem__)
    assert len(tensors) == 4
    assert again["a"]["b"] is state["a"]["b"] and again["0"] is state["0"]
    assert again.get(0, tensors.get("0")) is state[0]


# ---- values that only a state_dict() has


class Remembering(nn.Linear):
    """Has a value that is neither a parameter nor a buffer."""

    steps = 0

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "steps"] = torch.tensor(self.steps)


class Known(nn.Linear):
    def get_extra_state(self):
        return {}

    def set_extra_state(self, state):
        pass


def warnings_of(caplog, site, model, optimizer=None):
    with caplog.at_level(logging.WARNING, "tierckpt"):
        checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
        checkpoint.refresh()
        checkpoint.close()
    return [record.getMessage() for record in caplog.records if "saved" in record.getMessage()]


def test_what_only_the_state_dict_of_a_model_has_is_named_once(caplog, site):
    said = warnings_of(caplog, site, nn.Sequential(nn.Linear(2, 2), Remembering(2, 2)))
    assert len(said) == 1 and said[0].startswith("1.steps of the model is neither a parameter nor a buffer")


def test_what_only_the_state_dict_of_an_optimizer_has_is_named_once(caplog, site):
    model = mlp()
    said = warnings_of(caplog, site, model, Telling(model.parameters()))
    assert len(said) == 1 and said[0].startswith("steps in the state_dict() of the optimizer will not be saved")


def test_models_and_optimizers_that_are_saved_whole_are_not_warned_of(caplog, site):
    model = nn.Sequential(Known(3, 3), torch.compile(nn.Linear(3, 3), backend="eager"), nn.BatchNorm1d(3))
    model.append(model[0])
    model.register_buffer("passing", torch.zeros(1), persistent=False)
    optimizer = Outer(model.parameters())
    model(torch.ones(2, 3)).sum().backward()
    optimizer.inner.step()
    assert warnings_of(caplog, site, model, [optimizer, optimizer.inner]) == []
