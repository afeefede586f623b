# SPDX-License-Identifier: Apache-2.0
"""torchtitan's checkpoint manager with a job_config: each key does what torchtitan's document says."""

import random

import pytest

from harness import Job, run

NURSERY = "titan_program"


@pytest.fixture
def config(site):
    """Only where agents run and how: the rest is said by job_config.checkpoint."""
    return {key: value for key, value in site.config.items()
            if key not in ("job", "save_dir", "save_storage_interval")}


@pytest.fixture
def agents(site):
    site.config["job"] = ""  # of any job
    return site


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    """Without checkpoints."""
    path = tmp_path_factory.mktemp("uninterrupted")
    return run(path, "titan_program:train", nursery=nursery, world=2, dump=str(path), enable_checkpoint=False)


def call(tmp_path, nursery, function, world=2, **arguments):
    return run(tmp_path, f"titan_program:{function}", nursery=nursery, world=world, dump=str(tmp_path), **arguments)


def killed(tmp_path, nursery, function="train", **arguments):
    with Job(tmp_path, f"titan_program:{function}", nursery=nursery, dump=str(tmp_path), **arguments) as job:
        job.killed()


def assert_equal(ranks, reference):
    for rank, whole in zip(ranks, reference, strict=True):
        assert (rank["losses"], rank["digest"]) == (whole["losses"], whole["digest"])


def versions(tmp_path):
    return sorted(int(path.parent.name[1:13]) for path in tmp_path.glob("tierckpt/*/v*/manifest.json"))


@pytest.mark.parametrize("async_mode", ["disabled", "async", "async_with_pinned_mem"])
def test_killed_training_goes_on_from_memory_with_equal_bits(tmp_path, agents, config, nursery, uninterrupted,
                                                             async_mode):
    step = random.Random(async_mode).randint(2, 5)
    arguments = {"config": config, "async_mode": async_mode}
    killed(tmp_path, nursery, world=2, die_at=step, **arguments)
    ranks = call(tmp_path, nursery, "train", **arguments)
    assert [rank["first"] for rank in ranks] == [step] * 2
    assert_equal(ranks, uninterrupted)
    assert versions(tmp_path)[-1] == 6


def test_interval_in_steps_reaches_storage_and_keep_latest_k_are_kept(tmp_path, agents, config, nursery, uninterrupted):
    killed(tmp_path, nursery, world=2, die_at=5, config=config, interval=2, keep_latest_k=2)
    agents.kill_agents()
    ranks = call(tmp_path, nursery, "train", config=config, interval=1, keep_latest_k=2)
    assert [rank["first"] for rank in ranks] == [4] * 2
    assert_equal(ranks, uninterrupted)
    assert versions(tmp_path) == [5, 6]


def test_interval_in_seconds_reaches_storage(tmp_path, agents, config, nursery):
    killed(tmp_path, nursery, "train_until_saved", config=config, interval_type="seconds", interval=1)
    saved = versions(tmp_path)[-1]
    agents.kill_agents()
    ranks = call(tmp_path, nursery, "train", world=1, config=config, steps=saved + 1)
    assert ranks[0]["first"] == saved


def test_step_that_is_asked_for_is_loaded_or_named_in_an_error(tmp_path, agents, config, nursery, uninterrupted):
    call(tmp_path, nursery, "train", steps=4, config=config, interval=1)
    agents.kill_agents()
    for text in call(tmp_path, nursery, "refused", step=9, config=config):
        assert "step 9" in text and "the newest version seen is 1.4" in text
    ranks = call(tmp_path, nursery, "train", config=config, load_step=2)
    assert [rank["first"] for rank in ranks] == [2] * 2
    assert_equal(ranks, uninterrupted)


def test_another_number_of_ranks_loads_what_is_on_storage(tmp_path, agents, config, nursery):
    saved = call(tmp_path, nursery, "train", steps=2, config=config)
    for world in (4, 1):
        agents.kill_agents()
        ranks = call(tmp_path, nursery, "train", world=world, steps=0, config=config)
        assert [rank["loaded"] for rank in ranks] == [saved[0]["whole"]] * world


def test_last_save_has_weights_alone_in_export_dtype(tmp_path, agents, config, nursery):
    """And without freqs_cis of the model itself. No training can go on from it, so an earlier step is the newest."""
    call(tmp_path, nursery, "train", steps=3, config=config, interval=2, model_weights_only=True,
         export_dtype="bfloat16")
    found, = call(tmp_path, nursery, "contents", world=1, step=3)
    assert set(found.values()) == {"torch.bfloat16"}
    assert sorted(found) == ["block0.freqs_cis", "block0.w1.bias", "block0.w1.weight", "block0.w2.bias",
                             "block0.w2.weight"]
    agents.kill_agents()
    ranks = call(tmp_path, nursery, "train", steps=0, config=config)
    assert [rank["first"] for rank in ranks] == [2, 2]
    for text in call(tmp_path, nursery, "refused", step=3, config=config):
        assert "step-3 has the weights alone (model_weights_only)" in text


def test_export_dtype_float32_leaves_each_weight_in_its_own(tmp_path, agents, config, nursery):
    call(tmp_path, nursery, "train", world=1, steps=1, config=config, model_weights_only=True)
    found, = call(tmp_path, nursery, "contents", world=1, step=1)
    assert found.pop("block0.freqs_cis") == "torch.float64"
    assert set(found.values()) == {"torch.float32"}


def test_seed_checkpoint_begins_a_training_with_its_weights(tmp_path, agents, config, nursery):
    """One process saves it, as in torchtitan, and any number loads it."""
    model, = call(tmp_path, nursery, "seed", world=1, config=config)
    ranks = call(tmp_path, nursery, "train", steps=2, config=config)
    assert [(rank["first"], rank["loaded"][1]) for rank in ranks] == [(0, model)] * 2
    ranks = call(tmp_path, nursery, "train", steps=3, config=config)
    assert [rank["first"] for rank in ranks] == [2] * 2


def test_newer_checkpoint_of_torchtitan_in_the_folder_is_loaded(tmp_path, agents, config, nursery):
    call(tmp_path, nursery, "train", steps=2, config=config)
    stock = call(tmp_path, nursery, "stock", steps=3, config=config)
    ranks = call(tmp_path, nursery, "train", steps=4, config=config)
    assert [(rank["first"], rank["loaded"]) for rank in ranks] == [(3, stock[0]["whole"])] * 2
    assert [rank["losses"][:3] for rank in ranks] == [rank["losses"] for rank in stock]
    ranks = call(tmp_path, nursery, "train", steps=5, config=config)
    assert [rank["first"] for rank in ranks] == [4] * 2


def test_torch_loads_steps_of_a_training_with_storage_format_dcp(tmp_path, agents, config, nursery):
    config = {**config, "storage_format": "dcp"}
    saved = call(tmp_path, nursery, "train", steps=4, config=config, interval=2)
    assert sorted(path.name for path in (tmp_path / "checkpoint").iterdir()) == ["step-2", "step-4"]
    for world in (2, 1):
        for found in call(tmp_path, nursery, "loaded_by_torch", world=world, step=4):
            assert found == {"whole": saved[0]["whole"], "losses": saved[0]["losses"], "at": 4}
    ranks = call(tmp_path, nursery, "train", config=config)
    assert [rank["first"] for rank in ranks] == [4, 4]
    assert not any("torch has written" in line for line in ranks[0]["log"])


def test_parts_of_a_model_have_an_optimizer_and_a_schedule_each(tmp_path, agents, config, nursery):
    whole, = call(tmp_path, nursery, "train", world=1, parts=2, enable_checkpoint=False)
    killed(tmp_path, nursery, die_at=4, config=config, parts=2)
    resumed, = call(tmp_path, nursery, "train", world=1, config=config, parts=2)
    assert resumed["first"] == 4
    assert_equal([resumed], [whole])


def test_disabled_manager_saves_and_loads_nothing(tmp_path, uninterrupted):
    assert [(rank["first"], rank["loaded"]) for rank in uninterrupted] == [(0, None)] * 2


def test_keys_that_cannot_do_what_they_say_are_named(tmp_path, config, nursery):
    changes = [{"interval_type": "minutes"}, {"export_dtype": "int8"}, {"async_mode": "later"}, {"interval": 0},
               {"exclude_from_loading": ["optimizer"]}, {"config": {"max_ckpt_num": 3}}]
    texts, = call(tmp_path, nursery, "wrong", world=1, config=config, changes=changes)
    expected = ["interval_type of {} is 'minutes': it must be one of steps, seconds", "export_dtype of {} is 'int8'",
                "async_mode of {} is 'later'", "interval of {} is 0", "exclude_from_loading of {} is ['optimizer']",
                "max_ckpt_num is set by keep_latest_k of {}"]
    assert len(texts) == len(expected)
    for text, begin in zip(texts, expected, strict=True):
        assert text.startswith(begin.format("job_config.checkpoint")), text
