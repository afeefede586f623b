# SPDX-License-Identifier: Apache-2.0
"""EasyCkpt's lines for the Trainer of transformers, with the import that its document shows."""

import importlib.util

import pytest

from harness import Job, run

if importlib.util.find_spec("transformers") is None:
    pytest.skip("transformers is not installed", allow_module_level=True)

NURSERY = "easyckpt_transformers"
LEFT = ["checkpoint-10", "checkpoint-8"]


def test_killed_training_goes_on_with_equal_weights_and_keeps_two_checkpoints(tmp_path, nursery):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    (first, left, whole), = run(tmp_path, "easyckpt_transformers:train", nursery=nursery,
                                directory=str(tmp_path / "whole"))
    assert (first, left) == (0, LEFT)
    with Job(tmp_path, "easyckpt_transformers:train", nursery=nursery, directory=str(tmp_path / "killed"),
             die_at=7) as job:
        job.killed()
    (first, left, resumed), = run(tmp_path, "easyckpt_transformers:train", nursery=nursery,
                                  directory=str(tmp_path / "killed"))
    assert 4 <= first <= 7 and left == LEFT and resumed == whole
