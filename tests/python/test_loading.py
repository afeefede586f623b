# SPDX-License-Identifier: Apache-2.0
"""Partial loads, and loads beside a running job: what is loaded, what is left out, and that the job is not
disturbed."""

import copy
import logging
import os
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import tierckpt
from harness import run
from tierckpt.runtime import control


def layers(count=2, width=4, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, width), *(nn.Linear(width, width) for _ in range(count - 1)))


class Training:
    def __init__(self, site, model=None, optimizer=None, **arguments):
        self.model = model or layers()
        self.optimizer = optimizer or torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.scheduler = torch.optim.lr_scheduler.ExponentialLR(self.optimizer, 0.5)
        self.checkpoint = tierckpt.init(model=self.model, optimizer=self.optimizer, scheduler=self.scheduler,
                                        config=site.config, **arguments)

    def save(self, step, to_storage=True):
        self.model(torch.ones(1, 3)).sum().backward()
        self.optimizer.step()
        self.model.zero_grad()
        self.scheduler.step()
        assert self.checkpoint.save_checkpoint(step, to_storage=to_storage)
        self.checkpoint.wait("drained" if to_storage else "committed")
        return self

    def close(self):
        self.checkpoint.close(job_done=False)
        return self


def states(*parts):
    return copy.deepcopy([part.state_dict() for part in parts])


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def weights(model):
    return list(model.state_dict())


# ---- beside the training


@pytest.mark.parametrize("to_storage", [True, False])
def test_an_evaluation_reads_the_newest_and_the_training_goes_on(site, caplog, to_storage):
    training = Training(site).save(1).save(2, to_storage=to_storage)
    before = control.ask(site.config, None, "status")
    model = layers(seed=5)
    with caplog.at_level(logging.INFO):
        result = tierckpt.load(model, config=site.config)
    assert_equal(model.state_dict(), training.model.state_dict())
    assert (result.step, result.version, result.loaded) == (2, (1, 2), weights(model))
    assert (result.missing, result.mismatched, result.unexpected) == ([], [], ["optimizer", "scheduler"])
    where = "step 2 (term 1) is read from storage" if to_storage else "step 2 (term 1) was only in the agents' memory"
    assert where in caplog.text
    training.save(3, to_storage=False)
    after = control.ask(site.config, None, "status")
    assert (before["term"], before["committed"]["step"]) == (1, 2)
    assert (after["term"], after["committed"]["step"], len(after["trainers"])) == (1, 3, 1)
    training.checkpoint.close()


def test_without_agents_the_published_version_is_read_and_reported(site, caplog):
    training = Training(site).save(1).save(2, to_storage=False).close()
    site.kill_agents()
    with caplog.at_level(logging.INFO):
        assert tierckpt.load(training.model, config=site.config).step == 1
    assert "no agent answers on this node" in caplog.text


def test_everything_is_restored_in_a_program_that_does_not_train(site):
    extra = {"seen": 7, "big": torch.arange(40000.)}
    training = Training(site, extra_state=extra).save(1).close()
    wanted = states(training.model, training.optimizer, training.scheduler)
    model = layers(seed=5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.7)
    scheduler, mine = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9), {"seen": 0, "big": torch.zeros(40000)}
    torch.manual_seed(99)
    generator = torch.get_rng_state()
    result = tierckpt.load(model, optimizer, scheduler, mine, config=site.config)
    assert_equal(states(model, optimizer, scheduler), wanted)
    assert mine["seen"] == 7 and torch.equal(mine["big"], extra["big"])
    assert (result.missing, result.mismatched, result.unexpected) == ([], [], [])
    assert {"0.weight", "optimizer.0.weight.exp_avg", "optimizer", "scheduler", "extra_state"} <= set(result.loaded)
    assert torch.equal(torch.get_rng_state(), generator)


def test_a_scheduler_that_was_not_saved_is_no_mistake(site):
    model = layers()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=site.config)
    checkpoint.save_last(1)
    checkpoint.close()
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    result = tierckpt.load(model, optimizer, scheduler, config=site.config)
    assert result.missing == ["scheduler"] and "optimizer" in result.loaded


def test_one_of_several_models_alone(site):
    net, average = layers(), layers(seed=1)
    checkpoint = tierckpt.init(model={"net": net, "ema": average}, config=site.config)
    checkpoint.save_last(4)
    checkpoint.close()
    model = layers(seed=5)
    result = tierckpt.load({"ema": model}, config=site.config)
    assert_equal(model.state_dict(), average.state_dict())
    assert result.loaded == [f"ema.{name}" for name in weights(model)]
    assert sorted(result.unexpected) == sorted(f"net.{name}" for name in weights(model))
    with pytest.raises(tierckpt.LayoutError, match="not saved: 0.weight, 0.bias, 1.weight and 1 more"):
        tierckpt.load(model, config=site.config)


def test_a_step_and_a_directory_of_a_version(site):
    training = Training(site).save(1)
    wanted = states(training.model)
    training.save(2).close()
    model = layers(seed=5)
    assert tierckpt.load(model, config=site.config, step=1).step == 1
    assert_equal(states(model), wanted)
    with tierckpt.open_published(site.config) as published:
        path = published.info.path
    assert tierckpt.load(model, config=path).step == 2
    assert_equal(states(model), states(training.model))


# ---- what differs




@pytest.mark.parametrize("model, lists, text", [
    (layers(3), (["2.weight", "2.bias"], [], []), "not saved: 2.weight, 2.bias"),
    (layers(1), ([], ["1.bias", "1.weight"], []), "nothing here has a place for it: 1.bias, 1.weight"),
    (nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 5)), ([], [], ["1.weight", "1.bias"]),
     r"1.weight: it was saved as torch.float32 \(4, 4\), and is torch.float32 \(5, 4\) here"),
    (layers().double(), ([], [], ["0.weight", "0.bias", "1.weight", "1.bias"]), "torch.float64")])
def test_a_model_that_differs(site, model, lists, text):
    training = Training(site).save(1).close()
    before = states(model)
    with pytest.raises(tierckpt.LayoutError, match=text):
        tierckpt.load(model, config=site.config)
    assert_equal(states(model), before)
    result = tierckpt.load(model, config=site.config, strict=False)
    assert (result.missing, sorted(set(result.unexpected) - {"optimizer", "scheduler"}), result.mismatched) == lists
    saved, now, left = training.model.state_dict(), model.state_dict(), {*result.missing, *result.mismatched}
    for name, tensor in now.items():
        assert_equal(tensor, before[0][name] if name in left else saved[name])
        assert (name in result.loaded) == (name not in left)


def test_a_strict_load_that_is_refused_leaves_model_and_optimizer_as_they_were(site):
    Training(site).save(1).close()
    model = layers(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.7)
    before = states(model, optimizer)
    with pytest.raises(tierckpt.LayoutError, match="not saved: 2.weight, 2.bias, optimizer.2.weight.exp_avg and 5 "
                                                      "more"):
        tierckpt.load(model, optimizer, config=site.config)
    assert_equal(states(model, optimizer), before)


def test_the_optimizer_of_a_model_with_a_layer_more_gets_the_states_of_the_others(site):
    training = Training(site).save(1).close()
    model = layers(3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.7)
    result = tierckpt.load(model, optimizer, config=site.config, strict=False)
    assert optimizer.param_groups[0]["lr"] == training.optimizer.param_groups[0]["lr"] == 0.05
    for mine, saved in zip(model[:2].parameters(), training.model.parameters(), strict=True):
        assert_equal(optimizer.state[mine], training.optimizer.state[saved])
    assert all(not state.any() for state in optimizer.state[model[2].weight].values())
    assert [name for name in result.missing if "exp_avg_sq" in name] == ["optimizer.2.weight.exp_avg_sq",
                                                                         "optimizer.2.bias.exp_avg_sq"]
    assert result.mismatched == [] and "optimizer" in result.loaded


def test_another_optimizer_stays_as_it_is(site):
    training = Training(site).save(1).close()
    model = layers(seed=5)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9)
    before = copy.deepcopy(optimizer.state_dict()["param_groups"])
    result = tierckpt.load(model, optimizer, config=site.config, strict=False)
    assert_equal(states(model), states(training.model))
    assert optimizer.state_dict()["param_groups"] == before
    assert not any(optimizer.state.values())
    assert result.mismatched == ["optimizer"] and "optimizer.0.weight.exp_avg" in result.unexpected


# ---- a training that continues with another layout


def test_a_training_goes_on_with_a_layer_more(site):
    first = Training(site, extra_state={"seen": 7}).save(6).close()
    extra = {"seen": 0}
    second = Training(site, layers(3, seed=5), extra_state=extra)
    before = states(second.model, second.optimizer)
    with pytest.raises(tierckpt.LayoutError):
        second.checkpoint.load_checkpoint()
    assert_equal(states(second.model, second.optimizer), before)
    assert second.checkpoint.load_checkpoint(strict=False) == 6
    loaded = second.checkpoint.loaded
    assert_equal(states(second.model[:2]), states(first.model))
    assert_equal(second.scheduler.state_dict(), first.scheduler.state_dict())
    assert extra["seen"] == 7 and {"extra_state", "rng", "optimizer", "scheduler"} <= set(loaded.loaded)
    assert loaded.missing[:2] == ["2.weight", "2.bias"] and not loaded.unexpected and not loaded.mismatched
    second.save(7)
    assert second.checkpoint.load_checkpoint(strict=False) == 7
    assert not second.checkpoint.loaded.missing and second.checkpoint.restored is not None
    second.checkpoint.close()


def in_groups(order):
    model = nn.Linear(3, 3)
    parameters = [getattr(model, name) for name in order]
    groups = [{"params": [parameter], "lr": lr} for parameter, lr in zip(parameters, (1, 2), strict=True)]
    return model, torch.optim.AdamW(groups)


def test_a_training_goes_on_from_memory_with_parameters_in_other_groups(site):
    first = Training(site, *in_groups(["weight", "bias"])).save(6, to_storage=False).close()
    second = Training(site, *in_groups(["bias", "weight"]))
    assert second.checkpoint.load_checkpoint(strict=False) == 6
    assert_equal(states(second.model), states(first.model))
    for name in ("weight", "bias"):
        assert_equal(second.optimizer.state[getattr(second.model, name)],
                     first.optimizer.state[getattr(first.model, name)])
    assert [group["lr"] for group in second.optimizer.param_groups] == [1, 2]
    assert second.checkpoint.loaded.mismatched == ["optimizer"] and "weight" in second.checkpoint.loaded.loaded
    second.checkpoint.close()


def test_what_only_memory_has_comes_to_a_changed_model(site):
    first = Training(site).save(6, to_storage=False).close()
    second = Training(site, layers(3, seed=5))
    with pytest.raises(tierckpt.LayoutError):
        second.checkpoint.load_checkpoint()
    assert second.checkpoint.load_checkpoint(strict=False) == 6
    loaded = second.checkpoint.loaded
    assert_equal(states(second.model[:2]), states(first.model))
    assert loaded.missing[:2] == ["2.weight", "2.bias"] and "optimizer" in loaded.loaded
    second.save(7, to_storage=False).close()
    third = Training(site, layers(1, seed=6))
    assert third.checkpoint.load_checkpoint(strict=False) == 7
    assert_equal(states(third.model), states(second.model[:1]))
    third.checkpoint.close()


def test_what_storage_does_not_take_stays_loadable_in_the_layout_that_it_has(site, caplog):
    first = Training(site).save(6, to_storage=False).close()
    stage = Path(site.config["save_dir"]) / site.config["job"] / "stage"
    shutil.rmtree(stage, ignore_errors=True)
    stage.write_text("no directory")
    second = Training(site, layers(3, seed=5))
    before = states(second.model)
    assert "could not be published" in caplog.text
    with pytest.raises(tierckpt.LayoutError, match="only in the agents' memory"):
        second.checkpoint.load_checkpoint(strict=False)
    assert_equal(states(second.model), before)
    second.close()
    stage.unlink()
    third = Training(site, layers(seed=6))
    assert third.checkpoint.load_checkpoint() == 6
    assert_equal(states(third.model), states(first.model))
    third.checkpoint.close()


def test_what_only_memory_has_comes_to_a_changed_model_before_init(site):
    first = Training(site).save(6, to_storage=False).close()
    model = layers(3, seed=5)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    result = tierckpt.load(model, optimizer, config=site.config, strict=False)
    assert result.step == 6 and result.missing[:2] == ["2.weight", "2.bias"]
    assert_equal(states(model[:2]), states(first.model))
    second = Training(site, model, optimizer)
    assert second.checkpoint.load_checkpoint(strict=False) == 6
    second.save(7)
    second.checkpoint.close()


# ---- nothing saved, and unreadable versions


def test_nothing_saved_is_none_and_leaves_the_optimizer_without_state(site):
    model = layers()
    optimizer = torch.optim.AdamW(model.parameters())
    with pytest.raises(tierckpt.IoError, match="save_dir .* does not exist"):
        tierckpt.load(model, optimizer, config=site.config)
    assert not optimizer.state
    os.mkdir(site.config["save_dir"])
    assert tierckpt.load(model, optimizer, config=site.config) is None
    assert not optimizer.state


@pytest.mark.parametrize("strict", [True, False])
def test_what_cannot_be_read_is_an_error_and_nothing_changes(site, strict):
    Training(site).save(1).close()
    site.kill_agents()
    with tierckpt.open_published(site.config) as published:
        entry = next(entry for entry in published.entries if entry.key == "1.weight")
        shards = [path for path in (site.dir / "save").rglob("*") if path.is_file() and path.suffix != ".json"]
    assert entry.bytes == 64 and shards
    for path in shards:
        data = bytearray(path.read_bytes())
        path.write_bytes(bytes(byte ^ 1 for byte in data))
    model = layers(seed=5)
    before = states(model)
    with pytest.raises(tierckpt.Error):
        tierckpt.load(model, config=site.config, strict=strict)
    assert_equal(states(model), before)
    for path in (site.dir / "save").rglob("manifest.json"):
        path.write_text("{}")
    with pytest.raises(tierckpt.CorruptError, match="no version of job test can be read"):
        tierckpt.load(model, config=site.config, strict=strict)


# ---- several ranks


def save(rank, world, kind, config, reference):
    import models

    model, optimizer = models.make(kind)
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=config)
    model(torch.randn(4, models.WIDTH)).square().mean().backward()
    optimizer.step()
    checkpoint.save_checkpoint(2, to_storage=True)
    checkpoint.wait("drained")
    whole = _whole(model)
    if rank == 0:
        torch.save(whole, reference)
    checkpoint.close(job_done=False)


def _whole(model):
    bare = getattr(model, "module", model)
    return {key: (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).detach().clone()
            for key, tensor in bare.state_dict().items() if "running" not in key}


def load(rank, world, kind, config, reference, wide=False):
    """Returns [step, differences], or the error and whether nothing has changed."""
    import models

    model, optimizer = models.make(kind, seed=5)
    if wide and rank == 1:
        bare = getattr(model, "module", model)
        bare[3].bias = nn.Parameter(torch.zeros(9))
    before = _whole(model)
    try:
        result = tierckpt.load(model, None if wide else optimizer, config=config)
    except tierckpt.LayoutError as error:
        return [str(error), all(torch.equal(before[key], tensor) for key, tensor in _whole(model).items())]
    wanted, got = torch.load(reference), _whole(model)
    return [result.step, [key for key in wanted if not torch.equal(wanted[key], got[key])]]


@pytest.mark.parametrize("saved, loaded", [(("fsdp", 2), ("plain", 1)), (("ddp", 2), ("fsdp", 4)),
                                           (("plain", 1), ("plain", 2))])
def test_ranks_load_what_others_have_saved(tmp_path, site, saved, loaded):
    reference = str(tmp_path / "reference.pt")
    run(tmp_path, "test_loading:save", world=saved[1], kind=saved[0], config=site.config, reference=reference)
    answers = run(tmp_path, "test_loading:load", world=loaded[1], kind=loaded[0], config=site.config,
                  reference=reference)
    assert answers == [[2, []]] * loaded[1]


def test_what_does_not_fit_on_one_rank_is_loaded_on_none(tmp_path, site):
    reference = str(tmp_path / "reference.pt")
    run(tmp_path, "test_loading:save", world=1, kind="plain", config=site.config, reference=reference)
    answers = run(tmp_path, "test_loading:load", world=2, kind="plain", config=site.config, reference=reference,
                  wide=True)
    assert all("3.bias" in text and unchanged for text, unchanged in answers), answers
