# SPDX-License-Identifier: Apache-2.0
"""Common parts of the adapters: contents of plain modules and optimizers, and the save_dir of a framework."""

import pytest
import torch

import tierckpt
from tierckpt.adapters.trained import OptimizerStates, Trained
from tierckpt.runtime.settings import with_save_dir
from tierckpt.state import groups, walk_model
from tierckpt.state.records import fixed, whole
from tierckpt.state.sharding import Placer, rank_key, split_rank

PLACER = Placer(0, groups.of_ranks([0]))


def made(count=1):
    modules = [torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)) for _ in range(count)]
    optimizers = [torch.optim.AdamW(module.parameters(), lr=0.1 * (i + 1)) for i, module in enumerate(modules)]
    return modules, optimizers


def test_records_are_those_of_models_optimizers_and_generators():
    (module,), optimizers = made()
    trained = Trained([walk_model.unwrap(module)], optimizers, PLACER)
    more = whole("more", fixed(torch.ones(3)), None, eager=True)
    keys = [record.key for record in trained.records([more])]
    assert set(module.state_dict()) <= set(keys) and "optimizer.0.weight.exp_avg" in keys
    assert keys[-2:] == ["more", rank_key(0, "rng.torch")] and len(keys) == len(set(keys))
    assert trained.module_blobs == []


def test_several_optimizers_are_put_back_together():
    modules, optimizers = made(2)
    states = OptimizerStates([Trained([walk_model.unwrap(module)], [optimizer], PLACER).states[0]
                              for module, optimizer in zip(modules, optimizers, strict=True)])
    blob = states.blob("optimizers")
    saved = blob.capture()
    for optimizer in optimizers:
        optimizer.param_groups[0]["lr"] = 7.0
    blob.apply(saved)
    assert [optimizer.param_groups[0]["lr"] for optimizer in optimizers] == [0.1, 0.2]
    states.check()
    with pytest.raises(tierckpt.LayoutError, match="1 optimizers were saved, and there are 2"):
        blob.apply(saved[:1])


def test_state_that_came_after_registration_is_refused():
    (module,), optimizers = made()
    states = OptimizerStates(Trained([walk_model.unwrap(module)], optimizers, PLACER).states)
    optimizers[0].state[module[0].weight]["late"] = torch.ones(1)
    with pytest.raises(tierckpt.LayoutError, match="late came into being after it was registered"):
        states.check()


def test_save_dir_of_a_framework_is_taken_if_none_is_configured(tmp_path):
    assert with_save_dir({"save_dir": "/data"}, str(tmp_path), "tierckpt") == {"save_dir": "/data"}
    values = {"job": "a"}
    assert with_save_dir(values, str(tmp_path), "tierckpt") == {"job": "a", "save_dir": str(tmp_path / "tierckpt")}
    assert values == {"job": "a"}


@pytest.mark.parametrize("key, parts", [
    (rank_key(12, "rng.torch"), (12, "rng.torch")), (rank_key(0, "a/b"), (0, "a/b")),
    ("layer.weight", (None, "layer.weight")),
    ("rankings/weight", (None, "rankings/weight")), (rank_key(3, ""), (3, ""))])
def test_key_of_a_rank_is_taken_apart(key, parts):
    assert split_rank(key) == parts
