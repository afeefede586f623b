# SPDX-License-Identifier: Apache-2.0
"""Trainings with megatron-core that are killed and restarted end with the same bits as an uninterrupted one."""

import functools
import importlib.util
import json
import random

import pytest

from harness import Job, run

if importlib.util.find_spec("megatron") is None:  # an import here takes seconds; the nursery imports it
    pytest.skip("megatron-core is not installed", allow_module_level=True)

NURSERY = "megatron_training"
STEPS = 6
KINDS = ["plain", "sgd", "bf16", "fp16", "distributed", "distributed_bf16", "overlap", "fp32_overlap", "instances",
         "tp", "pp", "chunks", "experts", "context"]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory, nursery):
    """A function of (kind, world) that returns the losses by iteration and the digest of each rank; each combination is
    run once."""
    @functools.cache
    def ends(kind, world):
        path = tmp_path_factory.mktemp(kind)
        return run(path, "megatron_training:train", nursery=nursery, world=world, kind=kind, steps=STEPS)

    return ends


@pytest.fixture
def train(tmp_path, site, nursery, uninterrupted):
    return Trainings(tmp_path, site, nursery, uninterrupted)


class Trainings:
    def __init__(self, tmp_path, site, nursery, uninterrupted):
        self._common = {"nursery": nursery, "steps": STEPS, "config": site.config}
        self._tmp_path = tmp_path
        self._uninterrupted = uninterrupted

    def killed(self, kind, step, world=2, **arguments):
        with Job(self._tmp_path, "megatron_training:train", kind=kind, world=world, die_at=step, **self._common,
                 **arguments) as job:
            job.killed()

    def on(self, kind, world=2, **arguments):
        """Trains to the end. Returns how the ranks resumed: [iteration, flops, bytes by source]."""
        ranks = run(self._tmp_path, "megatron_training:train", kind=kind, world=world, **self._common, **arguments)
        for rank, expected in zip(ranks, self._uninterrupted(kind, world), strict=True):
            assert {step: expected[3][step] for step in rank[3]} == rank[3]
            assert rank[4] == expected[4]
        return [rank[:3] for rank in ranks]


def some_step(kind):
    return random.Random(kind).randint(2, STEPS - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_resumed_job_ends_with_equal_bits(train, site, kind):
    step = some_step(kind)
    train.killed(kind, step)
    ranks = train.on(kind)
    assert [rank[:2] for rank in ranks] == [[step, step * 1000]] * 2
    assert all(rank[2]["bytes_local"] > 0 for rank in ranks)
    assert site.agents_left(within_s=10) == []


@pytest.mark.parametrize("kind", ["overlap", "chunks", "instances", "context"])
def test_order_of_sums_of_four_ranks_is_the_same_after_a_resume(train, kind):
    train.killed(kind, 3, world=4)
    assert [rank[0] for rank in train.on(kind, world=4)] == [3] * 4


@pytest.mark.parametrize("kind", ["plain", "bf16", "overlap", "chunks"])
def test_snapshot_in_flight_is_lost_or_whole(train, kind):
    step = some_step(kind + " in flight")
    train.killed(kind, step, in_flight=True)
    (first, *_), (second, *_) = train.on(kind)
    assert first == second and first in (step - 1, step)


@pytest.mark.parametrize("kind, source", [
    ("bf16", "bytes_twin"), ("instances", "bytes_twin"), ("overlap", "bytes_peer"), ("tp", "bytes_peer"),
    ("experts", "bytes_peer")])
def test_lost_node_is_restored_from_the_other(train, site, kind, source):
    site.config["copies"] = 2
    train.killed(kind, 3, own_nodes=True)
    site.kill_agents("node1")
    first, second = train.on(kind, own_nodes=True)
    assert first[0] == second[0] == 3
    assert first[2]["bytes_local"] > 0 and second[2]["bytes_local"] == 0 and second[2][source] > 0


@pytest.mark.parametrize("kind", ["bf16", "overlap", "pp"])
def test_agents_that_lose_their_memory_restore_from_storage(train, site, kind):
    site.config["save_mem_interval"] = "off"
    train.on(kind, storage_at=4)
    site.kill_agents()
    ranks = train.on(kind)
    assert [rank[:2] for rank in ranks] == [[4, 4000]] * 2
    assert all(rank[2]["bytes_storage"] > 0 for rank in ranks)


# ---- another number of ranks


def saved_by_two(tmp_path, site, nursery, kind):
    """Returns the weights of each rank. Nothing is left in memory."""
    site.config.update(save_mem_interval="off", linger_s=1)
    weights = call(tmp_path, nursery, "save_for_others", kind=kind, config=site.config)
    site.kill_agents()
    return weights


@pytest.mark.parametrize("kind, world", [("bf16", 1), ("distributed_bf16", 1), ("fp32_overlap", 4), ("tp", 4)])
def test_other_data_parallel_ranks_load_what_is_published(tmp_path, site, nursery, kind, world):
    weights = saved_by_two(tmp_path, site, nursery, kind)
    ranks = run(tmp_path, "megatron_use:load_of_others", nursery=nursery, world=world, kind=kind, config=site.config)
    samples = 5 * 2 * 2
    assert [[rank[0], *rank[2:]] for rank in ranks] == [[[4, 4000], 0, samples]] * world
    assert {rank[1] for rank in ranks} == set(weights)


@pytest.mark.parametrize("kind, other, concat, text", [
    ("distributed_bf16", "instances", False, "call load_checkpoint(concat=True) if only the parallel sizes differ"),
    ("bf16", "plain", True, "it was saved by another model"),
])
def test_other_layouts_are_refused(tmp_path, site, nursery, kind, other, concat, text):
    saved_by_two(tmp_path, site, nursery, kind)
    for answer in call(tmp_path, nursery, "load_of_others_fails", kind=other, config=site.config, concat=concat):
        assert text in answer


# ---- correct and incorrect use


def call(tmp_path, nursery, function, **arguments):
    return run(tmp_path, f"megatron_use:{function}", nursery=nursery, world=2, **arguments)


def test_first_start_has_nothing_to_load(tmp_path, site, nursery):
    assert call(tmp_path, nursery, "load_at_first_start", config=site.config) == [[0, 0]] * 2


def test_load_goes_back_to_what_was_saved_in_the_same_process(tmp_path, site, nursery):
    for kind in ("bf16", "fp32_overlap"):
        assert call(tmp_path, nursery, "load_back", kind=kind, config=site.config) == [[3, True]] * 2


@pytest.mark.parametrize("kind", ["plain", "overlap", "chunks", "experts"])
def test_fence_comes_before_anything_changes(tmp_path, site, nursery, kind):
    assert call(tmp_path, nursery, "fence_comes_first", kind=kind, config=site.config) == [[True, False]] * 2


def test_example_continues_where_it_stopped(tmp_path, site, nursery, top):
    """Its job is finished at the end, so only the version on storage is left."""
    site.config.update(save_mem_interval="off", save_storage_interval=6)
    config = site.dir / "tierckpt.json"
    config.write_text(json.dumps(site.config))
    lines = []
    for iterations in ("11", "14"):
        printed, _ = call(tmp_path, nursery, "run_example", arguments=[iterations, str(config)],
                          path=str(top / "python/examples/megatron_gpt.py"))
        lines.append(dict(line.split(":") for line in printed.splitlines()))
        assert site.agents_left(within_s=30) == []
    first, second = lines
    assert list(second)[0] == "iteration 7" and list(second)[-1] == "iteration 14"
    assert all(first[f"iteration {number}"] == second[f"iteration {number}"] for number in range(7, 12))


def test_the_same_iteration_is_saved_once(tmp_path, site, nursery):
    assert call(tmp_path, nursery, "save_twice", config=site.config) == [[True, False]] * 2


@pytest.mark.parametrize("function, text", [
    ("save_before_initialize", "call initialize_easyckpt before the first save"),
    ("load_unconfigured", "save_dir"),
    ("initialize_twice", "call finalize_easyckpt first"),
    ("other_optimizer", "another model, optimizer or scheduler than the one that was registered"),
    ("unknown_optimizer", "Unknown with AdamW cannot be saved; known are FP32Optimizer"),
    ("other_heads", "the model has num_attention_heads=4, and the version that was loaded has 2"),
    ("other_layers", "was saved, and no rank has a place for it"),
    ("different_twins", "is said to be the same on ranks:0,1"),
    ("own_format_without_save", "give --save, or take storage_format out of the configuration"),
    ("unknown_key", "save_mem_intervall"),
])
def test_wrong_use_gets_one_error_that_says_what_to_do(tmp_path, site, nursery, function, text):
    for answer in call(tmp_path, nursery, function, config=site.config):
        assert text in answer


@pytest.mark.parametrize("function, symbol", [
    ("unknown_signature", "DistributedDataParallel.start_param_sync has the parameters (self)"),
    ("unknown_attributes", "DistributedOptimizer has no model_param_group_index_map"),
])
def test_unknown_megatron_switches_the_adapter_off_and_training_goes_on(tmp_path, site, nursery, function, symbol):
    for resumed, started, warnings in call(tmp_path, nursery, function, config=site.config):
        assert (resumed, started) == ([0, 0], False)
        assert len(warnings) == 1 and "tierckpt.megatron is off" in warnings[0] and symbol in warnings[0]
        assert "megatron-core 0.16.1 is not known" in warnings[0]


# ---- the hook without Megatron-LM's training program; test_megatron_lm.py tests it with the real one


def alone(tmp_path, nursery, function):
    return run(tmp_path, f"megatron_use:{function}", nursery=nursery)[0]


def test_hook_without_the_training_package_is_off_and_says_so(tmp_path, nursery):
    installed, (warning,) = alone(tmp_path, nursery, "hook_without_training")
    assert not installed
    assert "tierckpt.megatron.hook is off" in warning and "megatron.training.training:get_args is not there" in warning


def test_hook_that_is_switched_off_says_nothing(tmp_path, nursery):
    assert alone(tmp_path, nursery, "hook_switched_off") == [False, []]


def test_hook_wraps_once_however_often_it_is_imported(tmp_path, nursery):
    assert alone(tmp_path, nursery, "hook_twice") == [True, [], True]


def test_hook_leaves_an_unknown_training_package_alone(tmp_path, nursery):
    installed, (warning,), untouched = alone(tmp_path, nursery, "hook_of_unknown_training")
    assert not installed and untouched
    assert "megatron.training.training:checkpoint_and_decide_exit has the parameters" in warning
