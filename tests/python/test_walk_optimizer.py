# SPDX-License-Identifier: Apache-2.0
import copy

import pytest
import torch
from torch import nn

from tierckpt import InvalidArgumentError, LayoutError, UnsupportedError
from tierckpt.state import groups, jsonstate
from tierckpt.state.sharding import Placer
from tierckpt.state.statetree import tensors_in
from tierckpt.state.walk_optimizer import OptimizerState

ALONE = Placer(0, groups.of_ranks([0]))


def trained(model, optimizer, steps=2):
    for step in range(steps):
        def closure(step=step):
            optimizer.zero_grad()
            loss = model(torch.full((1, 2), float(step + 1))).square().sum()
            loss.backward()
            return loss

        closure()
        if isinstance(optimizer, torch.optim.SparseAdam):
            for param in model.parameters():
                param.grad = param.grad.to_sparse()
        optimizer.step(*[closure] * isinstance(optimizer, torch.optim.LBFGS))
        optimizer.zero_grad()


def state_of(model, optimizer):
    return OptimizerState(optimizer, dict(model.named_parameters()), ALONE)


def values(model, optimizer):
    return [model.state_dict(), optimizer.state_dict()]


def assert_equal(a, b):
    torch.testing.assert_close(without_texts(a), without_texts(b), rtol=0, atol=0)


def without_texts(value):
    if isinstance(value, dict):
        return {key: without_texts(item) for key, item in value.items()}
    return [without_texts(item) for item in value] if isinstance(value, list) else hash(value) % 997 if isinstance(
        value, str) else value


class Subclass(torch.optim.AdamW):
    """A subclass of a known optimizer."""


class OwnOptimizer(torch.optim.Optimizer):
    """Has state of other shapes, numbers, and a list of tensors."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr})
        self.calls = [0]

    @torch.no_grad()
    def step(self):
        self.calls[0] += 1
        for group in self.param_groups:
            for param in group["params"]:
                if param.grad is not None:
                    state = self.state[param]
                    state.setdefault("sums", [torch.zeros_like(param), torch.zeros(param.shape[0])])
                    state["count"] = state.get("count", 0) + 1
                    state["sums"][0].add_(param.grad)
                    state["sums"][1].add_(state["count"])
                    param.sub_(state["sums"][0] * group["lr"] + state["sums"][1].mean())


class Wrapper(torch.optim.Optimizer):
    """A wrapper like Accelerate's."""

    def __init__(self, optimizer):
        self.optimizer = optimizer

    state = property(lambda self: self.optimizer.state)
    param_groups = property(lambda self: self.optimizer.param_groups)

    def step(self):
        self.optimizer.step()

    def zero_grad(self):
        self.optimizer.zero_grad()

    def state_dict(self):
        return self.optimizer.state_dict()


KINDS = [
    lambda p: torch.optim.Adam(p, lr=0.1, amsgrad=True),
    lambda p: torch.optim.AdamW(p, lr=0.1),
    lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    lambda p: torch.optim.SGD(p, lr=0.1),
    lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.5),
    lambda p: torch.optim.Adafactor(p, lr=0.1),
    lambda p: torch.optim.Adadelta(p, lr=0.1),
    lambda p: torch.optim.Adagrad(p, lr=0.1),
    lambda p: torch.optim.Adamax(p, lr=0.1),
    lambda p: torch.optim.AdamW(p, lr=torch.tensor(0.1), foreach=False),
    lambda p: torch.optim.ASGD(p, lr=0.1),
    lambda p: torch.optim.LBFGS(p, lr=0.01, max_iter=2, history_size=3),
    lambda p: torch.optim.LBFGS(p, lr=0.01, max_iter=3, history_size=2, line_search_fn="strong_wolfe"),
    lambda p: torch.optim.NAdam(p, lr=0.1),
    lambda p: torch.optim.RAdam(p, lr=0.1),
    lambda p: torch.optim.RMSprop(p, lr=0.1, momentum=0.5, centered=True),
    lambda p: torch.optim.Rprop(p, lr=0.1),
    lambda p: torch.optim.SparseAdam(list(p), lr=0.1),
    lambda p: Subclass(p, lr=0.1),
    lambda p: OwnOptimizer(p, lr=0.1),
    lambda p: Wrapper(torch.optim.RMSprop(p, lr=0.1)),
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
    later = {f"optimizer.{name}.{key}" for name, param in model.named_parameters()
             for key in tensors_in(optimizer.state.get(param, {}))}
    if isinstance(optimizer, torch.optim.LBFGS):
        assert later <= keys and "optimizer.weight.old_dirs.1" in keys  # its history is not full yet
    else:
        assert keys == later


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steps_saved, steps_now", [(0, 0), (0, 3), (2, 0), (2, 3)])
def test_saved_state_is_restored(kind, steps_saved, steps_now):
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


def test_hyperparameters_are_restored():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    state = state_of(model, optimizer)
    saved = state.capture()
    optimizer.param_groups[0]["lr"] = 0.5
    state.apply(saved)
    assert optimizer.param_groups[0]["lr"] == 0.1


def test_all_optimizers_of_torch_are_tried():
    kinds = {type(kind(list(nn.Linear(2, 2).parameters()))) for kind in KINDS}
    every = {kind for kind in vars(torch.optim).values() if isinstance(kind, type)
             and issubclass(kind, torch.optim.Optimizer)}
    assert every - kinds == {torch.optim.Optimizer, torch.optim.Muon}  # Muon accepts only matrices


def test_muon_is_known_before_its_first_step():
    model = nn.Linear(2, 2, bias=False)
    optimizer = torch.optim.Muon(model.parameters())
    record, = state_of(model, optimizer).records()
    trained(model, optimizer, 1)
    assert record.key == "optimizer.weight.momentum_buffer"
    assert record.current().shape == optimizer.state[model.weight]["momentum_buffer"].shape


def test_probing_leaves_the_optimizer_alone():
    model = nn.Linear(2, 2)
    optimizer = OwnOptimizer(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    seen = []
    optimizer.register_step_pre_hook(lambda *_: seen.append(1))
    before, random = copy.deepcopy(model.state_dict()), torch.get_rng_state()
    state_of(model, optimizer)
    assert optimizer.calls == [0] and not optimizer.state and not seen and scheduler.last_epoch == 0
    assert_equal(model.state_dict(), before)
    assert torch.equal(torch.get_rng_state(), random)


class Secretive(torch.optim.Optimizer):
    """Its work is done by an inner optimizer, which must not step."""

    def __init__(self, params):
        self.inside = torch.optim.SGD(list(params), lr=0.1, momentum=0.9)
        super().__init__(self.inside.param_groups, {})

    def step(self):
        self.inside.step()
        for group in self.param_groups:
            for param in group["params"]:
                self.state[param]["slow"] = param.detach().clone()


def test_an_optimizer_that_cannot_be_probed_is_refused_until_it_has_stepped():
    model = nn.Linear(2, 2)
    optimizer = Secretive(model.parameters())
    with pytest.raises(UnsupportedError, match="Secretive has no state yet.*after the first optimizer step"):
        state_of(model, optimizer)
    trained(model, optimizer, 1)
    assert len(state_of(model, optimizer).records()) == 2


def test_parameters_that_changed_groups_do_not_fit():
    model = nn.Linear(2, 2)
    groups = [{"params": [model.weight], "lr": 0.1}, {"params": [model.bias], "lr": 0.5}]
    saved = state_of(model, torch.optim.SGD(groups, lr=0.1)).capture()
    groups[0]["params"], groups[1]["params"] = [model.bias], [model.weight]
    with pytest.raises(LayoutError, match="has bias in its group 0; when it was saved, it was in its group 1"):
        state_of(model, torch.optim.SGD(groups, lr=0.1)).fits(saved)


def test_another_number_of_groups_does_not_fit():
    model = nn.Linear(2, 2)
    saved = state_of(model, torch.optim.SGD([model.weight], lr=0.1)).capture()
    optimizer = torch.optim.SGD([{"params": [model.weight]}, {"params": [model.bias]}], lr=0.1)
    with pytest.raises(LayoutError, match="there are 2 groups of the optimizer, 1 were saved"):
        state_of(model, optimizer).fits(saved)


def test_state_that_appears_later_is_refused():
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    optimizer = torch.optim.Adam(model.parameters())
    state = state_of(model, optimizer)
    model.bias.requires_grad_(True)
    trained(model, optimizer, 1)
    with pytest.raises(LayoutError, match="optimizer.bias.exp_avg came into being|optimizer.bias"):
        state.check()


@pytest.mark.parametrize("kind, settings", [
    (torch.optim.AdamW, {}), (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}), (torch.optim.NAdam, {})])
def test_frozen_parameters_get_no_state(kind, settings):
    """The optimizer's state_dict() is the same as without Tierckpt."""
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    optimizer, stock = kind(model.parameters(), **settings), kind(model.parameters(), **settings)
    state_of(model, optimizer)
    assert model.bias not in optimizer.state
    for each in (optimizer, stock):
        trained(model, each, 1)
    assert optimizer.state_dict()["state"].keys() == stock.state_dict()["state"].keys() == {0}


def test_state_that_was_lost_is_refused():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    record = state_of(model, optimizer).records()[0]
    optimizer.state.clear()
    with pytest.raises(LayoutError, match="has lost"):
        record.current()


def test_stand_in_is_released_when_the_state_exists():
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    state = state_of(model, optimizer)
    assert len(state.capture()["absent"]) == 2
    trained(model, optimizer, 1)
    state.check()
    assert state.capture()["absent"] == [] and not any(state._stand_ins.values())


def test_parameter_that_the_model_lacks_is_refused():
    optimizer = torch.optim.SGD(nn.Linear(2, 5).parameters())
    with pytest.raises(InvalidArgumentError, match=r"parameter of shape \(5, 2\)"):
        state_of(nn.Linear(2, 2), optimizer)


def test_step_counts_are_eager_and_moments_lazy():
    model = nn.Linear(2, 2)
    records = state_of(model, torch.optim.Adam(model.parameters())).records()
    assert {record.key.split(".")[-1]: record.eager for record in records} == {
        "step": True, "exp_avg": False, "exp_avg_sq": False}


def test_state_that_was_put_in_the_place_of_another_is_found():
    """As load_state_dict does, and as a program may do that keeps its own state dicts."""
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
