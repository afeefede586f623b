# SPDX-License-Identifier: Apache-2.0
"""Which of what was saved belongs to the history that a start of Megatron-LM with --ckpt-step continues."""

import os
import subprocess
import sys

import pytest

from tierckpt.adapters.megatron.start import goes_on, launches, left_behind, may_be_restarted_by
from tierckpt.adapters.megatron.tracker import NAME, found_in

JOB = {"SLURM_JOB_ID": "7", "SLURM_CLUSTER_NAME": "c"}
TORCHRUN = {"TORCHELASTIC_RUN_ID": "none"}


def saved(asked=800, launched=("slurm c 7",), found=None):
    return {"asked": asked, "found": found, "launches": list(launched)}


def test_job_of_slurm_is_the_same_only_if_it_was_requeued():
    assert launches(JOB) == ["slurm c 7"]
    assert may_be_restarted_by(JOB) == may_be_restarted_by(JOB | {"SLURM_RESTART_COUNT": "0"}) == []
    assert may_be_restarted_by(JOB | {"SLURM_RESTART_COUNT": "1"}) == ["slurm c 7"]
    assert launches({}) == may_be_restarted_by({}) == []


def test_torchrun_is_the_same_as_long_as_its_process_lives():
    here = may_be_restarted_by(TORCHRUN)
    assert here == launches(TORCHRUN) == launches(TORCHRUN) and here[0].startswith("torchrun ")
    code = ("from tierckpt.adapters.megatron.start import launches\n"
            f"print(*launches({TORCHRUN}), sep='\\n')")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    children = [subprocess.run([sys.executable, "-c", code], check=True, text=True, stdout=subprocess.PIPE,
                               env=environment).stdout for _ in range(2)]
    assert children[0] == children[1] != here[0] + "\n"  # both have this process as their parent


@pytest.mark.parametrize("loaded, of, continues", [
    (900, saved(), True),
    (800, saved(), True), (800, None, True), (800, saved(asked=None), True),  # that iteration itself
    (900, None, False),  # not known
    (1000, saved(asked=None), False),  # saved before the training went back
    (900, saved(asked=700), False),
    (900, saved(launched=["slurm c 6"]), False),  # an earlier attempt from the same iteration
    (900, saved(launched=[]), False),
    (700, saved(asked=700), False)])
def test_same_launch_continues_with_what_it_has_saved_since(loaded, of, continues):
    assert goes_on(800, loaded, of, ["torchrun x", "slurm c 7"]) is continues


def test_checkpoint_is_left_behind_if_it_was_there_before(tmp_path):
    (tmp_path / NAME).write_text("1000")
    before = found_in(str(tmp_path))
    assert before[0] == 1000 and found_in(str(tmp_path / "away")) is found_in(None) is None
    assert left_behind(before, saved(found=before))
    assert not left_behind(before, saved()) and not left_behind(before, None) and not left_behind(None, saved())
    (tmp_path / "new").write_text("1000")  # the training has come to this iteration once more
    (tmp_path / "new").rename(tmp_path / NAME)
    assert not left_behind(found_in(str(tmp_path)), saved(found=before))
