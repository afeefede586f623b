# SPDX-License-Identifier: Apache-2.0
"""A step that torch has written is loaded by torch: after a load that failed while it copied, saves are possible again,
except if it is a seed checkpoint, which has the weights alone."""

import types

import pytest
import torch
import torch.distributed.checkpoint as stock

from tierckpt.adapters import torchtitan_lines


@pytest.mark.parametrize("step, filled", [(3, [True]), (0, [])])
def test_a_step_of_torch_repairs_what_a_failed_load_has_left(tmp_path, step, filled):
    calls = []
    manager = object.__new__(torchtitan_lines.CheckpointManager)
    manager.folder = str(tmp_path)
    manager.states = {name: {"w": torch.zeros(4)} for name in ("model", "optimizer")}
    manager._job = types.SimpleNamespace(filled_elsewhere=lambda: calls.append(True))
    stock.save({name: {"w": torch.ones(4)} for name in ("model", "optimizer")}, checkpoint_id=manager._path(step),
               no_dist=True)
    assert manager.load(step)
    assert manager.states["model"]["w"].tolist() == [1.0] * 4
    assert calls == filled
