# SPDX-License-Identifier: Apache-2.0
"""What Megatron's own checkpoints say of themselves: what cannot be read is no sign that there are none, and weights
alone repair no load that has failed while it copied."""

import importlib.util
import types

import pytest

from tierckpt import errors

if importlib.util.find_spec("megatron") is None:
    pytest.skip("megatron-core is not installed", allow_module_level=True)

from tierckpt.adapters.megatron import easyckpt
from tierckpt.adapters.megatron.tracker import tracked
from tierckpt.runtime.world import Oob, World

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


@pytest.mark.parametrize("arguments, loads", [
    ({}, True), ({"no_load_optim": True}, False), ({"finetune": True}, False)])
def test_weights_alone_are_not_loaded_over_torn_state(tmp_path, monkeypatch, arguments, loads):
    def fails():
        raise errors.UnrecoverableError("torn")

    attached = types.SimpleNamespace(
        load=fails, forget=lambda: None, load_published=lambda newest: None, world=World(0, 1, Oob()),
        asked=None, begin=lambda iteration, found: None, torn=lambda: True,
        stock=types.SimpleNamespace(directory_to_load=lambda named: named),
        checkpoint=None)
    monkeypatch.setattr(easyckpt, "begin", lambda: types.SimpleNamespace(attach=lambda *_: attached))
    monkeypatch.setattr(easyckpt, "arguments", lambda: types.SimpleNamespace(load=str(tmp_path), **arguments))
    monkeypatch.setattr(easyckpt.StockLoad, "load_for", lambda self, checkpoint: (120, 0))
    (tmp_path / NAME).write_text("120")
    for concat in (False, True):
        if loads:
            assert easyckpt.load_checkpoint(None, None, None, concat=concat) == (120, 0)
        else:
            with pytest.raises(errors.UnrecoverableError, match="torn"):
                easyckpt.load_checkpoint(None, None, None, concat=concat)
