# SPDX-License-Identifier: Apache-2.0
"""What was published with some parallel sizes is loaded with others: weights, FP32 masters and moments have equal bits.

TIERCKPT_MEGATRON_PAIRS=N tests N random pairs more; TIERCKPT_MEGATRON_SEED chooses other ones.
"""

import importlib.util
import json
import os
import random

import pytest

from harness import Job, run

if importlib.util.find_spec("megatron") is None:  # an import here takes seconds; the nursery imports it
    pytest.skip("megatron-core is not installed", allow_module_level=True)

NURSERY = "megatron_layouts"
MODELS = {
    "gated": {"bf16": True, "model": {"num_layers": 4, "gated_linear_unit": True, "num_query_groups": 2}},
    "tied": {"tied": True, "model": {"num_layers": 4}},
    "experts": {"bf16": True, "experts": 4, "model": {"num_layers": 4, "gated_linear_unit": True,
                                                      "add_bias_linear": False}},
    "half": {"fp16": True, "model": {"num_layers": 4}},
}
PAIRS = {
    "tp2 to tp1": ("gated", 2, {"tp": 2}, 1, {}),
    "tp1 to tp2": ("gated", 1, {}, 2, {"tp": 2}),
    "tp2 to tp1, distributed": ("gated", 4, {"tp": 2, "distributed": True}, 2, {"distributed": True}),
    "pp1 to pp2": ("tied", 1, {}, 2, {"pp": 2}),
    "pp2 to pp1": ("tied", 2, {"pp": 2, "distributed": True}, 2, {"distributed": True}),
    "pp2 to tp2": ("gated", 2, {"pp": 2, "distributed": True}, 2, {"tp": 2, "distributed": True}),
    "pp2 to vpp2": ("gated", 2, {"pp": 2, "distributed": True}, 2, {"pp": 2, "chunks": 2, "distributed": True}),
    "vpp2 to tp2 pp2": ("half", 2, {"pp": 2, "chunks": 2}, 4, {"tp": 2, "pp": 2}),
    "ep2 to ep1": ("experts", 2, {"ep": 2, "distributed": True}, 1, {"distributed": True}),
    "ep1 to ep2": ("experts", 1, {}, 2, {"ep": 2}),
    "ep2 pp2 to tp2": ("experts", 4, {"ep": 2, "pp": 2, "distributed": True}, 2, {"tp": 2, "distributed": True}),
    "cp2 to tp2": ("gated", 2, {"cp": 2, "distributed": True}, 2, {"tp": 2, "distributed": True}),
    "distributed off": ("gated", 2, {"distributed": True}, 2, {"tp": 2}),
    "distributed on": ("gated", 2, {"tp": 2}, 4, {"pp": 2, "distributed": True}),
    "distributed off, fp32": ("tied", 2, {"distributed": True}, 2, {"pp": 2}),
    "distributed on, fp32": ("tied", 2, {"pp": 2}, 2, {"distributed": True}),
}


def some_layout(draw, model):
    """Parallel sizes of at most four ranks."""
    while True:
        world = draw.choice([1, 2, 4])
        sizes = {name: draw.choice([1, 2]) for name in ("tp", "pp", "chunks", "cp")}
        sizes["ep"] = draw.choice([1, 2]) if model == "experts" else 1
        if sizes["pp"] == 1 and sizes["chunks"] > 1 or model == "experts" and sizes["cp"] > 1:
            continue
        dense, expert = sizes["tp"] * sizes["pp"] * sizes["cp"], sizes["tp"] * sizes["pp"] * sizes["ep"]
        if world % dense == 0 and world % expert == 0:
            return world, {**sizes, "distributed": draw.random() < 0.6}


def some_pair(number):
    draw = random.Random(f"{os.environ.get('TIERCKPT_MEGATRON_SEED', '')} {number}")
    model = draw.choice(list(MODELS))
    return model, *some_layout(draw, model), *some_layout(draw, model)


PAIRS.update({f"random {number}": some_pair(number) for number in range(int(os.environ.get("TIERCKPT_MEGATRON_PAIRS",
                                                                                        "0")))})


def kind(model, sizes):
    return {**MODELS[model], **sizes}


class Layouts:
    def __init__(self, tmp_path, site, nursery):
        self._tmp_path, self._site, self._nursery = tmp_path, site, nursery
        site.config.update(save_mem_interval="off", linger_s=1)

    def saved(self, world, kind):
        """The iteration, and the digests of the whole model. Nothing is left in memory."""
        path = self._tmp_path / "whole.json"
        with Job(self._tmp_path, "megatron_layouts:save", nursery=self._nursery, world=world, kind=kind,
                 config=self._site.config, path=str(path)) as job:
            job.killed()
        self._site.kill_agents()
        return json.loads(path.read_text())

    def loaded(self, world, kind):
        return self.calls("load", world, kind)

    def calls(self, function, world, kind=None, **more):
        """What the ranks return. Nothing is left in memory."""
        arguments = {} if kind is None else {"kind": kind, "config": self._site.config, **more}
        answers = run(self._tmp_path, f"megatron_layouts:{function}", nursery=self._nursery, world=world, **arguments)
        self._site.kill_agents()
        return answers

    def forget(self):
        """Begins another job."""
        self._site.config["job"] += "-other"


@pytest.fixture
def layouts(tmp_path, site, nursery):
    return Layouts(tmp_path, site, nursery)


@pytest.mark.parametrize("pair", PAIRS)
def test_other_parallel_sizes_load_equal_bits(layouts, pair):
    model, world, sizes, other_world, other_sizes = PAIRS[pair]
    iteration, expected = layouts.saved(world, kind(model, sizes))
    for resumed, digests, passes in layouts.loaded(other_world, kind(model, other_sizes)):
        assert resumed == [iteration, 3000]
        assert digests == expected
        assert passes == [6]


@pytest.mark.parametrize("pair, how", [("tp2 to tp1", {}), ("tp2 to tp1", {"turned": True}),
                                       ("distributed off", {"some": True}), ("distributed on", {}), ("ep1 to ep2", {})])
def test_other_parallel_sizes_are_read_onto_a_device_in_pieces(layouts, pair, how):
    """With a stand-in for the device."""
    model, world, sizes, other_world, other_sizes = PAIRS[pair]
    iteration, expected = layouts.saved(world, kind(model, sizes))
    for resumed, digests, passes, device in layouts.calls("load_onto_device", other_world, kind(model, other_sizes),
                                                          piece_bytes=256, **how):
        assert resumed == [iteration, 3000] and digests == expected and passes == [6]
        assert device["largest"] <= 256 and device["copies"] > device["tensors"] > 20


# ---- state that is not part of the model


def test_generators_of_places_that_remain_go_on_and_new_ones_are_derived_alike(layouts):
    before = layouts.calls("save_and_say", 2, kind("gated", {"tp": 2}))
    answers = layouts.calls("load_and_say", 4, kind("gated", {"tp": 2, "pp": 2}))
    now = [generators for generators, _, _ in answers]
    assert now[:2] == before
    assert now[2]["torch"] == now[3]["torch"] not in (before[0]["torch"], before[1]["torch"])
    assert now[2]["data-parallel-rng"] == now[3]["data-parallel-rng"] != before[0]["data-parallel-rng"]
    assert now[2]["model-parallel-rng"] != now[3]["model-parallel-rng"]
    (warning,) = [text for _, texts, _ in answers for text in texts if "derived" in text]
    assert "the generators of ranks [2, 3] are derived" in warning


def test_fewer_ranks_go_on_with_the_generators_of_their_places(layouts):
    before = layouts.calls("save_and_say", 4, kind("gated", {"tp": 2, "pp": 2, "distributed": True}))
    (answer,) = layouts.calls("load_and_say", 1, kind("gated", {}))
    assert answer[:2] == [before[0], []]


def test_rows_that_pad_the_vocabulary_become_zero(layouts):
    layouts.calls("save_and_say", 1, kind("gated", {"vocabulary": 64}))
    answers = layouts.calls("load_and_say", 2, kind("gated", {"tp": 2, "vocabulary": 72}))
    assert [left for _, _, left in answers] == [0, 0]
    (warning,) = [text for _, texts, _ in answers for text in texts if "padded" in text]
    assert "output_layer.weight (it has 72 rows and had 64)" in warning


# ---- what cannot be loaded


@pytest.mark.parametrize("flaw, reason", [
    ("no_description", "the version has no description of the model, as it was saved by an earlier version"),
    ("failing_description", "this model has no sharded state dict"),
])
def test_without_a_description_only_the_data_parallel_ranks_may_differ(layouts, flaw, reason):
    before = layouts.calls("save_and_say", 1, kind("tied", {}), flaw=flaw)
    (generators, _, _), _ = layouts.calls("load_and_say", 2, kind("tied", {}))
    assert generators == before[0]
    layouts.forget()
    layouts.calls("save_and_say", 2, kind("tied", {"tp": 2}), flaw=flaw)
    (error,) = layouts.calls("load_and_say", 1, kind("tied", {}))
    assert "Only the number of data-parallel ranks may differ here" in error and reason in error


def test_what_a_module_does_not_describe_needs_the_same_parts_of_the_model(layouts):
    layouts.calls("save_and_say", 2, kind("gated", {"tp": 2}), flaw="incomplete_description")
    for answer in layouts.calls("load_and_say", 4, kind("gated", {"tp": 2}), flaw="incomplete_description"):
        assert answer[1:] == [[], 0]
    (error,) = layouts.calls("load_and_say", 1, kind("gated", {}), flaw="incomplete_description")
    assert "final_layernorm.weight cannot be loaded with other parallel sizes" in error
    assert "the sharded_state_dict() of its module does not have it" in error


@pytest.mark.parametrize("model, sizes, text", [
    ("gated", {"pp": 2, "model": {"num_layers": 2}}, "the model has num_layers=2, and the version that was loaded has"),
    ("gated", {"tp": 2, "vocabulary": 64, "bf16": False}, "is bfloat16 in"),
    ("gated", {"tp": 2, "model": {"add_bias_linear": False}}, "no rank has a place for it"),
    ("gated", {"tp": 2, "optimizer": "sgd"}, "momentum_buffer is not in"),
    ("tied", {"tp": 2}, "it was saved by another model"),
])
def test_another_model_is_refused_before_anything_changes(layouts, model, sizes, text):
    layouts.calls("save_and_say", 1, kind("gated", {}))
    more = {**kind(model, sizes), "model": {**MODELS[model]["model"], **sizes.get("model", {})}}
    for answer in layouts.calls("load_and_say", 2, more):
        assert text in answer


def test_a_module_that_transposes_and_copies_is_described(layouts):
    assert layouts.calls("describe_transposed", 1) == [True]
