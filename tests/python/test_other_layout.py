# SPDX-License-Identifier: Apache-2.0
"""A training restarts with another number of ranks, or with another sharding, and continues where it stopped."""

import pytest
import torch

import tierckpt
import tierckpt.core.checkpoint
from harness import run


def _whole(tensor):
    return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()


def _state(model, optimizer):
    bare = getattr(model, "module", model)
    state = {key: _whole(tensor) for key, tensor in bare.state_dict().items()}
    for name, param in bare.named_parameters():
        state.update({f"{name}.{key}": _whole(value) for key, value in optimizer.state[param].items()})
    return state


def _train(model, optimizer, scheduler):
    import models

    model(torch.randn(4, models.WIDTH)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()


def _make(kind, seed):
    import models

    model, optimizer = models.make(kind, seed)
    return model, optimizer, torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))


def save(rank, world, kind, config, reference, to_storage=True):
    model, optimizer, scheduler = _make(kind, 0)
    position = {"samples": 100 + rank}
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, scheduler=scheduler, extra_state=position,
                               config=config)
    for _ in range(2):
        _train(model, optimizer, scheduler)
    checkpoint.save_checkpoint(2, to_storage=to_storage)
    checkpoint.wait("drained" if to_storage else "committed")
    state = _state(model, optimizer)
    if rank == 0:
        torch.save(state, reference)
    checkpoint.close(job_done=False)


def load(rank, world, kind, config, reference):
    """Returns [step, resharded, ranks that saved, position, rate, differences], and saves another step."""
    model, optimizer, scheduler = _make(kind, 5)
    position = {"samples": 0}
    torch.manual_seed(77)
    before = torch.get_rng_state()
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, scheduler=scheduler, extra_state=position,
                               config=config)
    step = checkpoint.load_checkpoint()
    restored = checkpoint.restored
    same_rng = torch.equal(torch.get_rng_state(), before)
    wanted, got = torch.load(reference), _state(model, optimizer)
    wrong = [key for key in wanted.keys() | got.keys()
             if key not in got or key not in wanted or not torch.equal(wanted[key], got[key])]
    rate = scheduler.get_last_lr()[0]
    _train(model, optimizer, scheduler)
    checkpoint.save_checkpoint(3)
    checkpoint.wait("committed")
    checkpoint.close(job_done=False)
    return [step, restored.resharded, restored.saved_world_size, position["samples"], same_rng, round(rate, 6), wrong]


def refused(rank, world, kind, config):
    tierckpt.core.checkpoint.publish_for = lambda *_: None
    model, optimizer, scheduler = _make(kind, 5)
    before = _state(model, optimizer)
    with tierckpt.init(model=model, optimizer=optimizer, scheduler=scheduler, config=config) as checkpoint:
        try:
            checkpoint.load_checkpoint()
        except tierckpt.LayoutError as error:
            after = _state(model, optimizer)
            return [str(error), all(torch.equal(before[key], after[key]) for key in before)]


@pytest.mark.parametrize("saved, loaded", [(("fsdp", 2), ("plain", 1)), (("fsdp", 2), ("fsdp", 4)),
                                           (("hsdp", 4), ("fsdp", 2)), (("ddp", 2), ("fsdp", 4))])
def test_another_number_of_ranks(tmp_path, site, saved, loaded):
    reference = str(tmp_path / "reference.pt")
    run(tmp_path, "test_other_layout:save", world=saved[1], kind=saved[0], config=site.config, reference=reference)
    answers = run(tmp_path, "test_other_layout:load", world=loaded[1], kind=loaded[0], config=site.config,
                  reference=reference)
    for answer in answers:
        assert answer == [2, True, saved[1], 0, True, round(0.1 / 3, 6), []]


def test_as_many_ranks_sharded_otherwise_get_their_own_back(tmp_path, site):
    reference = str(tmp_path / "reference.pt")
    run(tmp_path, "test_other_layout:save", world=2, kind="ddp", config=site.config, reference=reference)
    answers = run(tmp_path, "test_other_layout:load", world=2, kind="fsdp", config=site.config, reference=reference)
    for rank, answer in enumerate(answers):
        assert answer == [2, True, 2, 100 + rank, False, round(0.1 / 3, 6), []]


def test_what_only_memory_has_is_published_for_another_number_of_ranks(tmp_path, site):
    reference = str(tmp_path / "reference.pt")
    run(tmp_path, "test_other_layout:save", world=2, kind="fsdp", config=site.config, reference=reference,
        to_storage=False)
    answer, = run(tmp_path, "test_other_layout:load", kind="plain", config=site.config, reference=reference)
    assert answer == [2, True, 2, 0, True, round(0.1 / 3, 6), []]


def test_what_only_memory_has_is_published_for_as_many_ranks_sharded_otherwise(tmp_path, site):
    reference = str(tmp_path / "reference.pt")
    run(tmp_path, "test_other_layout:save", world=2, kind="ddp", config=site.config, reference=reference,
        to_storage=False)
    answers = run(tmp_path, "test_other_layout:load", world=2, kind="fsdp", config=site.config, reference=reference)
    for rank, answer in enumerate(answers):
        assert answer == [2, True, 2, 100 + rank, False, round(0.1 / 3, 6), []]


@pytest.mark.parametrize("kind, world", [("plain", 1), ("ddp", 2), ("fsdp", 2)])
def test_what_only_memory_has_is_not_published_for_the_layout_that_it_has(tmp_path, site, kind, world):
    reference = str(tmp_path / "reference.pt")
    run(tmp_path, "test_other_layout:save", world=world, kind=kind, config=site.config, reference=reference,
        to_storage=False)
    answers = run(tmp_path, "test_other_layout:load", world=world, kind=kind, config=site.config, reference=reference)
    for rank, answer in enumerate(answers):
        assert answer == [2, False, 0, 100 + rank, False, round(0.1 / 3, 6), []]
    with pytest.raises(tierckpt.NotFoundError):
        tierckpt.open_published(site.config)


def test_what_only_memory_has_is_not_passed_over(tmp_path, site):
    """If it was not published first, as in a C program."""
    reference = str(tmp_path / "reference.pt")
    run(tmp_path, "test_other_layout:save", world=2, kind="fsdp", config=site.config, reference=reference,
        to_storage=False)
    (text, unchanged), = run(tmp_path, "test_other_layout:refused", kind="plain", config=site.config)
    assert "only memory has it" in text and "tierckpt drain --wait" in text and unchanged
