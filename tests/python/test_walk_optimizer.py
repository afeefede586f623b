# SPDX-License-Identifier: Apache-2.0
import copy

import pytest
import torch
from torch import nn

from tierckpt import InvalidArgument, LayoutError, Unsupported, groups, jsonstate
from tierckpt.placer import Placer
from tierckpt.walk_optimizer import OptimizerState

ALONE = Placer(0, groups.of_ranks([0]))


def trained(model, optimizer, steps=2):
    for step in range(steps):
        model(torch.full((1, 2), float(step + 1))).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def state_of(model, optimizer):
    return OptimizerState(optimizer, dict(model.named_parameters()), ALONE)


def values(model, optimizer):
    return [model.state_dict(), optimizer.state_dict()]


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


KINDS = [
    lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    lambda p: torch.optim.AdamW(p, lr=0.1),
    lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
]


@pytest.mark.parametrize("kind", KINDS)
def test_registering_changes_nothing_in_training(kind):
    plain = nn.Linear(2, 2)
    walked = copy.deepcopy(plain)
    plain_optimizer, walked_optimizer = kind(plain.parameters()), kind(walked.parameters())
    state_of(walked, walked_optimizer)
    trained(plain, plain_optimizer)
    trained(walked, walked_optimizer)
    assert_equal(values(plain, plain_optimizer), values(walked, walked_optimizer))


@pytest.mark.parametrize("kind", KINDS)
def test_all_state_tensors_of_later_have_records_before_the_first_step(kind):
    model = nn.Linear(2, 2)
    optimizer = kind(model.parameters())
    keys = {record.key for record in state_of(model, optimizer).records()}
    trained(model, optimizer)
    assert keys == {f"optimizer.{name}.{key}" for name, param in model.named_parameters()
                    for key, value in optimizer.state[param].items() if torch.is_tensor(value)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps_saved, steps_now", [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_saved_state_comes_back(kind, steps_saved, steps_now):
    source = nn.Linear(2, 2)
    source_optimizer = kind(source.parameters())
    source_state = state_of(source, source_optimizer)
    trained(source, source_optimizer, steps_saved)
    tensors = {record.key: record.current().clone() for record in source_state.records()}
    rest = jsonstate.dumps("optimizer", source_state.capture())

    target = nn.Linear(2, 2)
    target.load_state_dict(source.state_dict())
    target_optimizer = kind(target.parameters())
    target_state = state_of(target, target_optimizer)
    trained(target, target_optimizer, steps_now)
    target.load_state_dict(source.state_dict())
    for record in target_state.records():
        record.current().copy_(tensors[record.key])
    target_state.apply(jsonstate.loads(rest))

    for model, optimizer in ((source, source_optimizer), (target, target_optimizer)):
        trained(model, optimizer)
    assert_equal(values(source, source_optimizer), values(target, target_optimizer))


def test_hyperparameters_come_back():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    state = state_of(model, optimizer)
    saved = state.capture()
    optimizer.param_groups[0]["lr"] = 0.5
    state.apply(saved)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_unknown_optimizer_must_have_stepped():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.RMSprop(model.parameters())
    with pytest.raises(Unsupported, match="RMSprop has no state yet.*after the first optimizer step"):
        state_of(model, optimizer)
    trained(model, optimizer, 1)
    assert len(state_of(model, optimizer).records()) == 4


def test_state_that_appears_later_is_refused():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    state = state_of(model, optimizer)
    model.bias.requires_grad_(True)
    trained(model, optimizer, 1)
    with pytest.raises(LayoutError, match="optimizer.bias.exp_avg came into being|optimizer.bias"):
        state.check()


def test_state_that_was_lost_is_refused():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    record = state_of(model, optimizer).records()[0]
    optimizer.state.clear()
    with pytest.raises(LayoutError, match="has lost"):
        record.current()


def test_stand_in_is_let_go_when_the_state_has_come():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = state_of(model, optimizer)
    assert len(state.capture()["absent"]) == 2
    trained(model, optimizer, 1)
    state.check()
    assert state.capture()["absent"] == [] and not any(state._stand_ins.values())


def test_parameter_that_the_model_lacks_is_refused():
    optimizer = torch.optim.SGD(nn.Linear(2, 5).parameters())
    with pytest.raises(InvalidArgument, match=r"parameter of shape \(5, 2\)"):
        state_of(nn.Linear(2, 2), optimizer)


def test_step_counts_are_eager_and_moments_lazy():
    model = nn.Linear(2, 2)
    records = state_of(model, torch.optim.Adam(model.parameters())).records()
    assert {record.key.split(".")[-1]: record.eager for record in records} == {
        "step": True, "exp_avg": False, "exp_avg_sq": False}


def test_state_that_was_put_in_the_place_of_another_is_found():
    """As load_state_dict does, and as a program may that keeps its own state dicts."""
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    trained(model, optimizer, 1)
    records = {record.key: record for record in state_of(model, optimizer).records()}
    before = records["optimizer.weight.exp_avg"].current()
    optimizer.state[model.weight] = {key: value.clone() for key, value in optimizer.state[model.weight].items()}
    now = records["optimizer.weight.exp_avg"].current()
    assert now is optimizer.state[model.weight]["exp_avg"] and now is not before


@pytest.mark.parametrize("kind", [torch.optim.AdamW, lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)])
def test_parameters_whose_gradients_somebody_sets_have_state_too(kind):
    main = torch.ones(3)
    optimizer = kind([main])
    state = OptimizerState(optimizer, {"main": main}, ALONE, every=True)
    keys = {record.key for record in state.records()}
    main.grad = torch.ones(3)
    optimizer.step()
    state.check()
    assert keys == {f"optimizer.main.{key}" for key, value in optimizer.state[main].items() if torch.is_tensor(value)}


def test_each_parameter_may_have_a_placer_of_its_own():
    class ByName(Placer):
        def of(self, name):
            return Placer(0, groups.of_ranks([0, len(name)]))

    model = nn.Linear(2, 2)
    state = OptimizerState(torch.optim.AdamW(model.parameters()), dict(model.named_parameters()), ByName(0, None))
    assert {record.key: record.group for record in state.records() if "exp_avg" in record.key} == {
        "optimizer.bias.exp_avg": "ranks:0,4", "optimizer.bias.exp_avg_sq": "ranks:0,4",
        "optimizer.weight.exp_avg": "ranks:0,6", "optimizer.weight.exp_avg_sq": "ranks:0,6"}
