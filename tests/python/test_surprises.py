# SPDX-License-Identifier: Apache-2.0
"""Unexpected programs: names exchanged in place, unusual optimizers, ranks that disagree."""

import copy

import pytest
import torch
from torch import nn

import tierckpt
from harness import run
from models import Secretive


def mlp(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))


def train(model, optimizer):
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    model.zero_grad()


def states(*parts):
    return copy.deepcopy([part.state_dict() for part in parts])


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def save(checkpoint, step):
    result = checkpoint.save_checkpoint_if_needed(step)
    if result:
        checkpoint.wait("committed")
    return result


# ---- the model


class Twins(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)


def test_modules_that_exchange_their_names_are_saved_under_those_that_they_have_now(site):
    model = Twins()
    checkpoint = tierckpt.init(model=model, config=site.config)
    save(checkpoint, 1)
    a, b = model.a, model.b
    del model.a, model.b
    model.b, model.a = a, b  # the same modules in the same order
    save(checkpoint, 2)
    wanted = states(model)[0]
    checkpoint.close(job_done=False)
    again = Twins()
    checkpoint = tierckpt.init(model=again, config=site.config)
    assert checkpoint.load_checkpoint() == 2
    checkpoint.close()
    assert_equal(dict(again.state_dict()), dict(wanted))


def test_a_parameter_made_anew_of_the_same_memory_is_watched(site):
    model = mlp()
    checkpoint = tierckpt.init(model=model, config=site.config)
    save(checkpoint, 1)
    model[0].weight = nn.Parameter(model[0].weight.data)  # it has another version counter
    with checkpoint._client.watch._lock:
        assert checkpoint.save_checkpoint(2)
        with torch.no_grad():
            model[0].weight.fill_(7)
    with pytest.raises(tierckpt.CanceledError, match="0.weight changed while it was being copied"):
        checkpoint.wait("committed", 2)
    checkpoint.close()


# ---- optimizers


def test_an_optimizer_for_parameters_that_were_assigned_is_another_one(site):
    model = mlp()
    checkpoint = tierckpt.init(model=model, optimizer=torch.optim.AdamW(model.parameters()), config=site.config)
    model.load_state_dict({key: value.clone() for key, value in model.state_dict().items()}, assign=True)
    other = torch.optim.AdamW(model.parameters())
    train(model, other)
    assert "stepped by another optimizer (AdamW)" in save(checkpoint, 1).reason
    checkpoint.refresh(optimizer=other)
    assert save(checkpoint, 2)
    checkpoint.close()


def test_a_layout_that_has_changed_does_not_end_the_step_of_another_optimizer(site):
    model, more = mlp(), nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(model[0].parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
    optimizer.add_param_group({"params": list(more.parameters())})
    train(model, torch.optim.SGD(model[2].parameters(), lr=0.1))
    assert save(checkpoint, 1).skipped
    checkpoint.close()


def lbfgs(seed):
    model = mlp(seed)
    optimizer = torch.optim.LBFGS(model.parameters(), history_size=3, line_search_fn="strong_wolfe", max_iter=4)
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(5))

    def loss():
        optimizer.zero_grad()
        value = model(x).pow(2).sum()
        value.backward()
        return value

    return model, optimizer, lambda: optimizer.step(loss)


def test_a_number_that_is_a_tensor_in_some_steps_only_is_saved_in_all(site):
    model, optimizer, step = lbfgs(0)
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
    for number in range(1, 9):
        step()
        assert save(checkpoint, number)
    wanted = [model.state_dict(), optimizer.state_dict()["state"]]
    checkpoint.close(job_done=False)
    again, optimizer, _ = lbfgs(1)
    checkpoint = tierckpt.init(model=again, optimizer=optimizer, config=site.config)
    assert checkpoint.load_checkpoint() == 8
    checkpoint.close()
    assert_equal([again.state_dict(), optimizer.state_dict()["state"]], wanted)


class Sharp(torch.optim.Optimizer):
    """Stepped by its own methods, like SAM, and with another optimizer inside."""

    def __init__(self, params):
        super().__init__(params, {})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1, momentum=0.9)
        self.param_groups = self.base.param_groups

    @torch.no_grad()
    def first_step(self):
        for param in self.param_groups[0]["params"]:
            self.state[param]["before"] = param.clone()
            param.add_(param.grad)

    @torch.no_grad()
    def second_step(self):
        for param in self.param_groups[0]["params"]:
            param.data = self.state[param]["before"]
        self.base.step()


def test_an_optimizer_whose_step_is_never_called_is_registered_when_it_has_state(site):
    model = mlp()
    optimizer = Sharp(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=[optimizer, optimizer.base], config=site.config)
    for number in (1, 2, 3):
        for step in (optimizer.first_step, optimizer.second_step):
            model(torch.ones(1, 3)).sum().backward()
            step()
            model.zero_grad()
        assert save(checkpoint, number)
    wanted = states(model, optimizer)
    with torch.no_grad():
        model[0].weight.zero_()
    assert checkpoint.load_checkpoint() == 3
    assert_equal(states(model, optimizer), wanted)
    checkpoint.close()


def test_an_optimizer_that_init_was_given_is_not_reported_as_unknown(site, caplog):
    model = mlp()
    optimizer = Secretive(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
    train(model, optimizer)
    assert save(checkpoint, 1)
    checkpoint.close()
    assert "init was not given" not in caplog.text


def test_state_of_an_optimizer_that_cannot_be_probed_is_restored_after_an_extra_step(site):
    model = mlp()
    optimizer = Secretive(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
    train(model, optimizer)
    save(checkpoint, 1)
    wanted = states(model, optimizer)
    checkpoint.close(job_done=False)
    model = mlp(1)
    optimizer = Secretive(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
    with pytest.raises(tierckpt.LayoutError, match="take one step of it before load_checkpoint"):
        checkpoint.load_checkpoint()
    train(model, optimizer)
    assert checkpoint.load_checkpoint() == 1
    assert_equal(states(model, optimizer), wanted)
    checkpoint.close()


class Stubborn:
    """An extra_state whose state_dict() fails for a while."""

    broken = False

    def state_dict(self):
        if self.broken:
            raise RuntimeError("not now")
        return {}

    def load_state_dict(self, state):
        pass


def test_a_registration_that_fails_during_the_training_skips_saves_and_ends_nothing(site):
    model, extra = mlp(), Stubborn()
    optimizer = Secretive(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, extra_state=extra, config=site.config)
    train(model, optimizer)
    extra.broken = True
    assert "not now" in save(checkpoint, 1).reason and "not now" in checkpoint.save_checkpoint(2).reason
    extra.broken = False
    assert save(checkpoint, 3)
    checkpoint.close()


def test_a_refresh_that_finds_no_agents_leaves_a_training_that_goes_on(site, monkeypatch):
    model = mlp()
    checkpoint = tierckpt.init(model=model, config=site.config)
    save(checkpoint, 1)

    def refuse(_place):
        raise tierckpt.UnreachableError("no agent can be started")

    monkeypatch.setattr("tierckpt.core.checkpoint.Place.client", refuse)
    with pytest.raises(tierckpt.UnreachableError):
        checkpoint.refresh()
    assert "no agent can be started" in checkpoint.save_checkpoint_if_needed(2).reason
    assert "no agent can be started" in checkpoint.save_checkpoint(3).reason
    with pytest.raises(tierckpt.UnreachableError):
        checkpoint.save_last(4)
    checkpoint.close()


def grows_on_one(rank, world, config):
    """Returns the results of a refresh and of the saves around it when one rank has something that cannot be saved."""
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3))
    extra = {}
    checkpoint = tierckpt.init(model=model, extra_state=extra, config=config)
    said = [save(checkpoint, 1).state]
    for step, spoil in ((2, lambda: model.module.register_buffer("more", torch.eye(3).to_sparse())),
                        (3, lambda: extra.update(more=object()))):
        if rank == 1:
            spoil()
        try:
            checkpoint.refresh()
        except tierckpt.UnsupportedError as error:
            said.append(str(error).split(":")[0])
        if rank == 1 and step == 2:
            del model.module.more
        extra.clear()
        said.append(save(checkpoint, step).state)
    checkpoint.close()
    return said


def test_a_refresh_that_one_rank_cannot_make_changes_nothing_on_any(tmp_path, site):
    said = run(tmp_path, "test_surprises:grows_on_one", world=2, config=site.config)
    assert [of_rank[::2] for of_rank in said] == [["started"] * 3] * 2
    assert said[0][1::2] == ["nothing is registered, as rank 1 cannot"] * 2


# ---- loads


def test_a_scheduler_that_cannot_take_what_was_saved_is_refused_before_anything_changes(site):
    schedulers = torch.optim.lr_scheduler
    model = mlp()
    optimizer = torch.optim.AdamW(model.parameters())
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, scheduler=schedulers.StepLR(optimizer, 2),
                               config=site.config)
    train(model, optimizer)
    save(checkpoint, 1)
    checkpoint.close(job_done=False)
    model = mlp(1)
    optimizer = torch.optim.AdamW(model.parameters())
    parts = [schedulers.ConstantLR(optimizer, total_iters=2), schedulers.ExponentialLR(optimizer, 0.9)]
    scheduler = schedulers.SequentialLR(optimizer, parts, [2])
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, scheduler=scheduler, config=site.config)
    before, of_scheduler = states(model, optimizer), copy.deepcopy(scheduler.state_dict())
    with pytest.raises(tierckpt.LayoutError, match="the scheduler, a SequentialLR, cannot take the state"):
        checkpoint.load_checkpoint()
    assert_equal(states(model, optimizer), before)
    assert scheduler.state_dict() == of_scheduler
    checkpoint.close()


class Refusing:
    def state_dict(self):
        return {"x": 1}

    def load_state_dict(self, state):
        raise ValueError("never")


def test_a_scheduler_that_takes_nothing_is_named(site):
    checkpoint = tierckpt.init(model=mlp(), scheduler=Refusing(), config=site.config)
    save(checkpoint, 1)
    with pytest.raises(tierckpt.LayoutError, match="the scheduler, a Refusing, cannot take .* ValueError: never"):
        checkpoint.load_checkpoint()
    checkpoint.close()


def changed_on_one(rank, world, config):
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3))
    checkpoint = tierckpt.init(model=model, config=config)
    save(checkpoint, 1)
    if rank == 1:
        model.module.register_buffer("more", torch.zeros(2))
    try:
        checkpoint.load_checkpoint()
    except tierckpt.LayoutError as error:
        said = str(error)
    checkpoint.close()
    return said


def test_a_layout_that_has_changed_on_one_rank_ends_the_load_on_all(tmp_path, site):
    said = run(tmp_path, "test_surprises:changed_on_one", world=2, config=site.config)
    assert said[0].startswith("nothing is loaded, as rank 1 cannot") and said[1].startswith("more came into the model")
