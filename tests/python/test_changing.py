# SPDX-License-Identifier: Apache-2.0
"""The model and the optimizers change while a checkpoint is open: the current state is saved, or nothing is."""

import copy
import json
import logging
import subprocess

import pytest
import torch
from torch import nn

import tierckpt
from harness import run
from models import Secretive
from tierckpt.core import watch
from tierckpt.core.checkpoint import Contents, attach
from tierckpt.runtime import control
from tierckpt.runtime.world import join_world
from tierckpt.state.records import whole


class Job:
    def __init__(self, site, model=None, optimizer=None, **arguments):
        self.model = model or nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
        self.optimizer = optimizer or torch.optim.AdamW(self.model.parameters(), lr=0.1)
        self.checkpoint = tierckpt.init(model=self.model, optimizer=self.optimizer, config=site.config, **arguments)

    def step(self, optimizer=None):
        self.model(torch.ones(1, 3)).sum().backward()
        (optimizer or self.optimizer).step()
        self.model.zero_grad()

    def save(self, step):
        result = self.checkpoint.save_checkpoint(step)
        if result:
            self.checkpoint.wait("committed")
        return result

    def state(self):
        return copy.deepcopy([self.model.state_dict(), self.optimizer.state_dict()])


@pytest.fixture
def job(site):
    job = Job(site)
    yield job
    job.checkpoint.close()


def assert_equal(a, b):
    torch.testing.assert_close(a, b, rtol=0, atol=0)


def assert_restored(job, step):
    """Asserts that the version of this step equals the current state of the job."""
    wanted = job.state()
    with torch.no_grad():
        for tensor in job.model.state_dict().values():
            tensor.zero_()
    assert job.checkpoint.load_checkpoint() == step
    assert_equal(job.state(), wanted)


# ---- the same layout is followed


def assign(model):
    model.load_state_dict({key: torch.full_like(value, 7) for key, value in model.state_dict().items()}, assign=True)


def other_parameter(model):
    model[0].weight = nn.Parameter(torch.full((4, 3), 7.0))


def other_submodule(model):
    model[2] = nn.Linear(4, 2)


def other_data(model):
    model[2].bias.data = torch.full((2,), 7.0)


@pytest.mark.parametrize("change", [assign, other_parameter, other_submodule, other_data])
def test_what_was_put_in_the_place_of_something_of_its_shape_is_saved(job, change):
    job.step()
    job.save(1)
    change(job.model)
    assert job.save(2)
    assert_restored(job, 2)


def test_an_optimizer_without_the_parameters_that_the_model_has_now_is_warned_of_once(job, caplog):
    other_parameter(job.model)
    job.save(1)
    job.save(2)
    assert caplog.text.count("the model has other parameters by now") == 1 and "0.weight" in caplog.text


def test_optimizer_state_that_was_replaced_is_saved(job):
    job.step()
    job.save(1)
    other = torch.optim.AdamW(job.model.parameters(), lr=0.1)
    job.step(other)
    job.optimizer.load_state_dict(other.state_dict())
    job.checkpoint.refresh()
    job.save(2)
    assert_restored(job, 2)


# ---- another layout needs a refresh


def add_group(job):
    job.more = nn.Linear(2, 2)
    job.model.append(job.more)
    job.optimizer.add_param_group({"params": list(job.more.parameters()), "lr": 0.5})


def add_buffer(job):
    job.model.register_buffer("seen", torch.ones(3))


def add_adapter(job):
    job.model[0].lora_a = nn.Parameter(torch.ones(2, 3))


def widen(job):
    job.model[0].weight.data = torch.ones(4, 3, dtype=torch.float64)


def drop(job):
    del job.model[2].bias


@pytest.mark.parametrize("change, name", [
    (add_group, "3.bias came into the model"), (add_buffer, "seen came into the model"),
    (add_adapter, "0.lora_a came into the model"), (widen, "0.weight was registered as torch.float32"),
    (drop, "2.bias was registered, and the model does not have it any more")])
def test_without_refresh_saves_are_skipped_and_the_tensor_is_named_once(site, caplog, change, name):
    job = Job(site)
    job.step()
    assert job.save(1)
    change(job)
    with caplog.at_level(logging.WARNING):
        assert [job.save(step).skipped for step in (2, 3)] == [True, True]
    assert caplog.text.count("saves are skipped") == 1
    assert name in caplog.text and "call ckpt.refresh() on every rank" in caplog.text
    job.checkpoint.close()


def test_a_group_of_parameters_that_the_model_had_all_along_is_noticed(site):
    first, second = nn.Linear(3, 4), nn.Linear(4, 2)
    job = Job(site, nn.Sequential(first, second), torch.optim.AdamW(first.parameters()))
    assert job.save(1)
    job.optimizer.add_param_group({"params": list(second.parameters())})
    skipped = job.save(2)
    assert skipped.skipped and "among them 1." in skipped.reason and "ckpt.refresh()" in skipped.reason
    job.checkpoint.close()


@pytest.mark.parametrize("change", [add_group, add_buffer, add_adapter])
def test_after_refresh_the_new_layout_is_saved_and_restored(site, change):
    job = Job(site)
    job.step()
    job.save(1)
    change(job)
    job.checkpoint.refresh()
    job.step()
    assert job.save(2)
    assert_restored(job, 2)
    job.checkpoint.close()


def test_what_was_saved_before_a_refresh_can_still_be_restored(site):
    job = Job(site)
    job.step()
    job.save(1)
    wanted = job.state()
    add_buffer(job)
    job.checkpoint.refresh()
    job.checkpoint.close(job_done=False)
    again = Job(site)
    assert again.checkpoint.load_checkpoint() == 1
    assert_equal(again.state(), wanted)
    again.checkpoint.close()


def test_what_only_memory_had_before_a_refresh_is_loaded_after_saves_in_the_new_layout(site):
    job = Job(site)
    job.step()
    assert job.checkpoint.save_checkpoint(1)  # without a wait
    wanted = job.state()
    add_group(job)
    job.checkpoint.refresh()
    for step in range(2, 6):
        job.step()
        assert job.save(step)
    job.checkpoint.close(job_done=False)
    with tierckpt.open_published(site.config, step=1) as published:
        assert "3.weight" not in published.keys
    again = Job(site)
    assert again.checkpoint.load_checkpoint(1) == 1
    assert_equal(again.state(), wanted)
    again.checkpoint.close()


def test_a_refresh_in_the_same_layout_publishes_nothing(job, site):
    job.save(1)
    job.checkpoint.refresh()
    with pytest.raises(tierckpt.NotFoundError):
        tierckpt.open_published(site.config)


def test_unfreezing_needs_a_refresh(site):
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    model[0].requires_grad_(False)
    job = Job(site, model)
    job.step()
    assert job.save(1)
    model.requires_grad_(True)
    job.step()
    skipped = job.save(2)
    assert "optimizer.0." in skipped.reason and "ckpt.refresh()" in skipped.reason
    job.checkpoint.refresh()
    assert job.save(2)
    assert_restored(job, 2)
    job.checkpoint.close()


def test_an_exchanged_optimizer_is_noticed_at_its_first_step(job):
    job.step()
    assert job.save(1)
    other = torch.optim.SGD(job.model.parameters(), lr=0.1, momentum=0.9)
    job.step(other)
    skipped = job.save(2)
    assert "stepped by another optimizer (SGD)" in skipped.reason
    job.checkpoint.refresh(optimizer=other)
    job.optimizer = other
    job.step()
    assert job.save(3)
    assert_restored(job, 3)


def test_a_refresh_that_cannot_be_changes_nothing(job):
    job.step()
    with pytest.raises(tierckpt.InvalidArgumentError, match="that the model does not have"):
        job.checkpoint.refresh(optimizer=torch.optim.SGD(nn.Linear(1, 1).parameters()))
    assert job.save(1)
    assert_restored(job, 1)


def test_extra_state_that_outgrew_its_room_fits_after_a_refresh(site):
    extra = {"text": "x"}
    job = Job(site, extra_state=extra)
    extra["text"] = "x" * 300000
    assert "ckpt.refresh()" in job.save(1).reason
    job.checkpoint.refresh()
    assert job.save(2)
    extra["text"] = ""
    assert job.checkpoint.load_checkpoint() == 2 and len(extra["text"]) == 300000
    job.checkpoint.close()


def save_grown(site, text, **arguments):
    """Runs a program whose extra_state outgrows its room, and has more room after a refresh. Returns its state."""
    extra = {"n": 1}
    job = Job(site, extra_state=extra, **arguments)
    job.step()
    assert job.save(1)
    extra["text"] = text
    job.checkpoint.refresh()
    job.step()
    assert job.save(2)
    state = job.state()
    job.checkpoint.close(job_done=False)
    return state


@pytest.mark.parametrize("published", [False, True])
def test_what_outgrew_its_room_comes_back_in_a_program_that_starts_with_less(site, published, caplog):
    state = save_grown(site, "x" * 300_000)
    if published:
        drain(site)
        site.kill_agents()
    extra = {"n": 0}
    again = Job(site, extra_state=extra)
    assert again.checkpoint.load_checkpoint() == 2
    assert extra == {"n": 1, "text": "x" * 300_000}
    assert_equal(again.state(), state)
    assert again.checkpoint.restored.version.step == 2 and not again.checkpoint.restored.resharded
    again.step()
    assert again.save(3)
    assert "could have been loaded" not in caplog.text
    assert_restored(again, 3)
    again.checkpoint.close()


def test_a_program_that_starts_with_more_loads_what_had_less_room(site):
    state = save_grown(site, "small")
    for capacity, step in ((500_000, 3), (None, 4)):
        extra = {"more": "y" * 100_000}
        again = Job(site, extra_state=extra, capacity=capacity and {"extra_state": capacity})
        assert again.checkpoint.load_checkpoint() == step - 1
        assert extra == {"n": 1, "text": "small", "more": "y" * 100_000}
        assert_equal(again.state(), state)
        assert again.save(step)
        again.checkpoint.close(job_done=False)


def test_a_model_of_another_layout_is_refused_and_saves_go_on_in_its_own(site):
    save_grown(site, "x" * 300_000)
    other = Job(site, nn.Linear(3, 5), extra_state={"n": 7})
    before = other.state()
    with pytest.raises(tierckpt.LayoutError, match="has another layout"):
        other.checkpoint.load_checkpoint()
    assert_equal(other.state(), before)
    other.step()
    assert other.save(3)
    other.checkpoint.close()


def drain(site):
    assert control.ask(site.config, None, "drain", "--wait") is not None


def one_of_two_grows(rank, world, config):
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    extra = {"rank": rank}
    checkpoint = tierckpt.init(model=model, extra_state=extra, config=config)
    loaded = checkpoint.load_checkpoint()
    if loaded is None:
        extra["text"] = "x" * 300_000 * rank
        checkpoint.refresh()
        checkpoint.save_checkpoint(1)
        checkpoint.wait("committed")
    checkpoint.close(job_done=loaded is not None)
    return loaded, extra["rank"], len(extra.get("text", ""))


def test_all_ranks_take_the_saved_room_if_one_of_them_had_more(tmp_path, site):
    def go():
        return run(tmp_path, "test_changing:one_of_two_grows", world=2, config=site.config)

    go()
    assert go() == [[1, 0, 0], [1, 1, 300_000]]


def test_show_lists_the_versions_in_memory_and_the_room_of_their_blobs(site):
    save_grown(site, "x" * 300_000)
    segments = control.ask(site.config, None, "show")["segments"]
    newest = [segment["blobs"] for segment in segments for slot in segment["slots"]
              if slot["committed"] and slot["version"] == {"term": 2, "step": 2}]
    assert [blobs["rank0/tierckpt.extra_state"] >= 300_000 for blobs in newest] == [True]
    text = subprocess.run([control._command(), "--config-json", json.dumps(site.config), "show"], check=True,
                          capture_output=True, text=True).stdout
    assert " 2.2 committed" in text


def test_a_refresh_is_no_load_that_was_missed(site, caplog):
    job = Job(site)
    job.step()
    assert job.save(1)
    job.checkpoint.refresh()
    assert job.save(2)
    job.checkpoint.close()
    assert "could have been loaded" not in caplog.text


def two_ranks(rank, world, config):
    """Returns [skipped without a refresh, restored step, whether everything was restored]."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    checkpoint = tierckpt.init(model=model, optimizer=optimizer, config=config)
    checkpoint.save_checkpoint(1)
    checkpoint.wait("committed")
    model.module.register_buffer("seen", torch.full((2,), float(rank)))
    skipped = checkpoint.save_checkpoint(2).skipped
    checkpoint.refresh()
    checkpoint.save_checkpoint(3)
    checkpoint.wait("committed")
    model.module.seen.zero_()
    step = checkpoint.load_checkpoint()
    checkpoint.close()
    return [skipped, step, model.module.seen.tolist() == [float(rank)] * 2]


def test_ranks_refresh_together(tmp_path, site):
    assert run(tmp_path, "test_changing:two_ranks", world=2, config=site.config) == [[True, 3, True]] * 2


# ---- several models and optimizers


class Gan:
    def __init__(self, site, seed, **arguments):
        torch.manual_seed(seed)
        self.g, self.d = nn.Linear(2, 3), nn.Linear(3, 1)
        self.g_opt = torch.optim.AdamW(self.g.parameters(), lr=0.1)
        self.d_opt = torch.optim.SGD(self.d.parameters(), lr=0.1, momentum=0.9)
        self.g_lr = torch.optim.lr_scheduler.ExponentialLR(self.g_opt, 0.5)
        self.d_lr = torch.optim.lr_scheduler.ExponentialLR(self.d_opt, 0.9)
        self.checkpoint = tierckpt.init(model={"g": self.g, "d": self.d}, config=site.config,
                                        optimizer=[self.g_opt, self.d_opt], scheduler=[self.g_lr, self.d_lr])

    def step(self):
        for optimizer in (self.g_opt, self.d_opt):
            self.d(self.g(torch.ones(1, 2))).sum().backward()
            optimizer.step()
            self.g.zero_grad(), self.d.zero_grad()
        self.g_lr.step(), self.d_lr.step()

    def state(self):
        return copy.deepcopy([part.state_dict() for part in (self.g, self.d, self.g_opt, self.d_opt, self.g_lr,
                                                             self.d_lr)])


def test_several_models_and_optimizers_are_restored_together(site):
    first = Gan(site, seed=0)
    for step in (1, 2, 3):
        first.step()
        assert first.checkpoint.save_checkpoint_if_needed(step)
    first.checkpoint.save_last(3)
    wanted = first.state()
    first.checkpoint.close(job_done=False)
    second = Gan(site, seed=1)
    assert second.checkpoint.load_checkpoint() == 3
    assert_equal(second.state(), wanted)
    second.checkpoint.close()
    with tierckpt.open_published(site.config) as published:
        assert {"g.weight", "d.bias", "optimizer.g.weight.exp_avg", "optimizer.d.bias.momentum_buffer"} <= set(
            published.keys)


def test_every_optimizer_waits_for_the_copy(site):
    gan = Gan(site, seed=0)
    gan.step()
    for step, optimizer in enumerate((gan.g_opt, gan.d_opt), start=1):
        gan.checkpoint.save_checkpoint(step)
        optimizer.step()
        assert gan.checkpoint.stats().saves_skipped == 0
        gan.checkpoint.wait("committed")
    gan.checkpoint.close()


def test_an_optimizer_whose_parameters_are_in_none_of_the_models_is_refused(site):
    other = nn.Linear(7, 5)
    with pytest.raises(tierckpt.InvalidArgumentError, match=r"optimizer 'b' has a parameter of shape \(5, 7\)"):
        model = nn.Linear(1, 1)
        tierckpt.init(model={"m": model}, config=site.config,
                      optimizer={"a": torch.optim.SGD(model.parameters()), "b": torch.optim.SGD(other.parameters())})


def test_an_average_of_the_weights_is_a_second_model(site):
    model = nn.Linear(3, 3)
    average = torch.optim.swa_utils.AveragedModel(model)
    checkpoint = tierckpt.init(model=[model, average], config=site.config)
    checkpoint.save_checkpoint(1)
    checkpoint.fence()
    average.update_parameters(model)
    checkpoint.save_checkpoint(2)
    checkpoint.wait("committed")
    wanted = copy.deepcopy(average.state_dict())
    with torch.no_grad():
        for parameter in average.parameters():
            parameter.zero_()
    assert checkpoint.load_checkpoint() == 2
    assert_equal(average.state_dict(), wanted)
    checkpoint.close()


# ---- writes by others during a copy


def held(checkpoint):
    """Holds back the confirmation of snapshots."""
    return checkpoint._client.watch._lock


def test_a_late_confirmation_does_not_count_for_the_next_snapshot():
    words = []

    class Client:
        def set_confirm(self, on):
            pass

        def confirm(self, step, why_not):
            words.append(step)

        def await_copied(self, timeout_ms):
            watching.settle()  # in the meantime, the training continues and saves the next step
            watching.begun(3)
            return 2

    class Versions:
        def changed(self):
            return []

    watching = watch.Watch(Client(), Versions())
    watching.stop()
    watching.begun(2)
    watching.look()
    assert words == [2]
    watching.settle()
    assert words == [2, 3]


def test_a_tensor_that_was_written_to_during_the_copy_makes_no_version(job, caplog):
    job.save(1)
    weight = job.model[0].weight.detach().clone()
    with held(job.checkpoint):
        job.checkpoint.save_checkpoint(2)
        with torch.no_grad():
            job.model[0].weight.fill_(7)
    with pytest.raises(tierckpt.CanceledError, match="0.weight changed while it was being copied"):
        job.checkpoint.wait("committed", 2)
    assert "0.weight" in caplog.text and "a save is given up" in caplog.text
    assert job.checkpoint.load_checkpoint() == 1
    assert torch.equal(job.model[0].weight, weight)


def test_what_an_adapter_registers_is_watched_too(site):
    weight = torch.zeros(3, 4)
    contents = Contents([whole("weight", lambda: weight, None, eager=False)], [])
    with attach(contents, world=join_world(), config=site.config) as checkpoint:
        with held(checkpoint):
            checkpoint.save_checkpoint(1)
            weight.fill_(7)
        with pytest.raises(tierckpt.CanceledError, match="weight changed while it was being copied"):
            checkpoint.wait("committed", 1)


def test_what_was_written_to_once_is_copied_in_the_call_from_then_on(job):
    with held(job.checkpoint):
        job.checkpoint.save_checkpoint(1)
        with torch.no_grad():
            job.model[0].weight.fill_(7)
    job.checkpoint.fence()
    with held(job.checkpoint):
        job.checkpoint.save_checkpoint(2)
        with torch.no_grad():
            job.model[0].weight.fill_(8)
    job.checkpoint.wait("committed", 2)
    assert job.checkpoint.load_checkpoint() == 2
    assert job.model[0].weight.unique().tolist() == [7.0]


def test_an_optimizer_that_init_was_not_given_waits_for_the_copy_too(site, caplog):
    first, second = nn.Linear(3, 4), nn.Linear(4, 2)
    other = torch.optim.SGD(second.parameters(), lr=0.1)
    job = Job(site, nn.Sequential(first, second), torch.optim.AdamW(first.parameters()), extra_state=other)
    job.step(other)
    weight = second.weight.detach().clone()
    job.model(torch.ones(1, 3)).sum().backward()
    job.checkpoint.save_checkpoint(1)
    other.step()
    assert job.checkpoint.stats().saves_copied == 1
    job.checkpoint.wait("committed")
    assert job.checkpoint.load_checkpoint() == 1
    assert torch.equal(second.weight, weight)
    job.checkpoint.close()


def test_a_snapshot_under_way_is_sealed_by_close(site):
    job = Job(site)
    job.checkpoint.save_checkpoint(1)
    wanted = job.state()
    job.checkpoint.close(job_done=False)
    again = Job(site)
    assert again.checkpoint.load_checkpoint() == 1
    assert_equal(again.state(), wanted)
    again.checkpoint.close()


# ---- a load checks everything before it changes anything


@pytest.mark.parametrize("to_storage", [False, True])
def test_a_load_into_other_groups_of_parameters_is_refused_and_nothing_changed(site, to_storage):
    first = Job(site)
    first.step()
    first.checkpoint.save_checkpoint(1, to_storage=to_storage)
    first.checkpoint.wait("drained" if to_storage else "committed")
    first.checkpoint.close(job_done=False)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    weights = list(model.parameters())
    job = Job(site, model, torch.optim.AdamW([{"params": weights[:1]}, {"params": weights[1:], "lr": 0.5}], lr=0.1))
    before = job.state()
    with pytest.raises(tierckpt.LayoutError):
        job.checkpoint.load_checkpoint()
    assert_equal(job.state(), before)
    job.checkpoint.close()


def test_parameters_moved_between_groups_are_refused_and_nothing_changed(site):
    def made(order):
        model = nn.Linear(2, 2)
        groups = [{"params": [getattr(model, name)], "lr": lr} for name, lr in zip(order, (0.1, 0.5), strict=True)]
        return Job(site, model, torch.optim.AdamW(groups))

    first = made(["weight", "bias"])
    assert first.save(1)
    first.checkpoint.close(job_done=False)
    job = made(["bias", "weight"])
    before = job.state()
    with pytest.raises(tierckpt.LayoutError, match="has bias in its group 0; when it was saved, it was in its group 1"):
        job.checkpoint.load_checkpoint()
    assert_equal(job.state(), before)
    job.checkpoint.close()


def test_an_optimizer_of_which_nothing_is_known_is_registered_at_the_first_save_after_its_first_step(site):
    model = nn.Linear(3, 2)
    job = Job(site, model, Secretive(model.parameters()))
    assert job.checkpoint.load_checkpoint() is None
    assert job.save(1).skipped
    job.step()
    assert job.checkpoint.save_checkpoint_if_needed(2)
    job.checkpoint.wait("committed")
    assert_restored(job, 2)
    job.checkpoint.close()
