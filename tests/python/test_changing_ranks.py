# SPDX-License-Identifier: Apache-2.0
"""Tensors of a fully_shard model are replaced after init: each rank saves the model's current tensors."""

import functools

import pytest
import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor

import tierckpt
from harness import Nursery, run

MESH = functools.partial(torch.distributed.device_mesh.init_device_mesh, "cpu", (2,))


def make():
    torch.manual_seed(0)
    model, mesh = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.Linear(4, 2)), MESH()
    fully_shard(model[2], mesh=mesh, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, reshard_after_forward=False)
    return model


def filled(parameter, value):
    return distribute_tensor(torch.full(tuple(parameter.shape), float(value)), parameter.device_mesh,
                             parameter.placements)


def assign_all(model):
    """Loads another checkpoint into the model."""
    model.load_state_dict({name: filled(value, 7) for name, value in model.state_dict().items()}, assign=True)


def put_parameter(model):
    model[0].weight = nn.Parameter(filled(model[0].weight, 7))


def put_parameter_of_inner_wrapper(model):
    model[2].weight = nn.Parameter(filled(model[2].weight, 7))


def put_data(model):
    model[2].bias.data = filled(model[2].bias, 7)


def put_local_data(model):
    local = model[0].bias.to_local()
    model[0].bias._local_tensor = torch.full_like(local, 7)


def put_module(model):
    """Creates and wraps a part of the model again."""
    model[2] = nn.Linear(5, 4)
    fully_shard(model[2], mesh=MESH())


def convert(model):
    """Both calls create new tensors."""
    model.double()
    model.float()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(7)


def gather(model):
    """As in a loop that inspects whole parameters."""
    model.unshard()


def gather_inner(model):
    model[2].unshard()


def forward(model):
    """Runs a forward pass: the gathered parameters stay until a backward pass."""
    model(torch.ones(2, 3)).sum()


def before_the_first_step(model):
    """fully_shard inspects the modules once more when they are called for the first time."""
    put_parameter(model)


CHANGES = (assign_all, put_parameter, put_parameter_of_inner_wrapper, put_data, put_local_data, put_module, convert,
           gather, gather_inner, forward, before_the_first_step)


def train(model, optimizer):
    model(torch.randn(2, 3)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def states(model):
    """Returns this rank's pieces, by their names in state_dict."""
    return {name: value.to_local().detach().clone() for name, value in model.state_dict().items()}


def replaced(rank, world, config, change):
    """Returns [why the save was skipped, loaded step, names whose restored bytes differ]."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tierckpt.init(model=model, optimizer=optimizer, config=config) as checkpoint:
        if change != "before_the_first_step":
            train(model, optimizer)
        assert checkpoint.save_checkpoint(1)
        checkpoint.wait("committed")
        globals()[change](model)
        saved = checkpoint.save_checkpoint(2)
        if saved:
            checkpoint.wait("committed")
        wanted = states(model)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.zero_()
        step = checkpoint.load_checkpoint()
        found = states(model)
        return [saved.reason, step, [name for name in wanted if not torch.equal(wanted[name], found[name])]]


@pytest.fixture(scope="module")
def nursery(tmp_path_factory):
    with Nursery(tmp_path_factory.mktemp("nursery"), "test_changing_ranks") as nursery:
        yield nursery


@pytest.mark.parametrize("change", [change.__name__ for change in CHANGES])
def test_what_fully_shard_has_cut_is_followed(tmp_path, site, nursery, change):
    answers = run(tmp_path, "test_changing_ranks:replaced", world=2, nursery=nursery, config=site.config, change=change)
    assert answers == [[None, 2, []]] * 2
