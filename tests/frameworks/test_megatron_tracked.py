# SPDX-License-Identifier: Apache-2.0
"""What Megatron's own checkpoints say of themselves: what cannot be read is no sign that there are none."""

import importlib.util

import pytest

from tierckpt import errors

if importlib.util.find_spec("megatron") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)

from tierckpt.adapters.megatron.tracker import tracked

NAME = "latest_checkpointed_iteration.txt"


def test_iteration_is_the_one_that_the_file_names(tmp_path):
    assert tracked(None) is None and tracked(str(tmp_path / "away")) is None and tracked(str(tmp_path)) is None
    (tmp_path / NAME).write_text("120\n")
    assert tracked(str(tmp_path)) == 120
    (tmp_path / NAME).write_text("release")
    assert tracked(str(tmp_path)) == 0


def test_file_that_cannot_be_read_is_an_error_that_names_it(tmp_path):
    (tmp_path / NAME).mkdir()  # reading it fails for any user
    with pytest.raises(errors.IoError, match=f"{NAME}: Is a directory: it is not known what was saved there"):
        tracked(str(tmp_path))
