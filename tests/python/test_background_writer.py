# SPDX-License-Identifier: Apache-2.0
"""Files that are written while training goes on."""

import collections
import contextlib
import threading
from pathlib import Path

import pytest
import torch

from tierckpt.adapters.background_writer import BackgroundWriter, copy_to_cpu, write_durably


def test_a_copy_does_not_change_any_more():
    flat = torch.arange(6.0)
    state = collections.OrderedDict(first=flat[:3], nested=[{"second": flat[3:]}, (flat.view(2, 3), "text")])
    state.mark = 5
    kept = copy_to_cpu(state)
    flat.zero_()
    assert kept["first"].tolist() == [0, 1, 2] and kept["nested"][0]["second"].tolist() == [3, 4, 5]
    assert type(kept) is collections.OrderedDict and kept.mark == 5
    assert kept["nested"][1][1] == "text"


def test_tensors_that_share_memory_share_it_in_the_copy():
    flat = torch.arange(6.0)
    first, whole = copy_to_cpu([flat[:3], flat])
    first[0] = 9
    assert whole[0] == 9 and flat[0] == 0


def test_objects_are_copied_and_gradients_are_not_asked_for():
    weight = torch.nn.Parameter(torch.ones(2))
    kept = copy_to_cpu({"weight": weight, "product": weight * 2, "empty": torch.zeros(0), "set": {1}})
    assert not kept["weight"].requires_grad and kept["product"].tolist() == [2, 2]
    assert kept["empty"].shape == (0,) and kept["set"] == {1}


def test_a_file_that_fails_leaves_the_one_before(tmp_path):
    path = tmp_path / "file"
    write_durably(path, lambda partial: Path(partial).write_text("before"))

    def fail(partial):
        Path(partial).write_text("half")
        raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        write_durably(path, fail)
    assert path.read_text() == "before"


def test_what_belongs_together_is_finished_when_all_of_it_is_there(tmp_path):
    writer, gate, done = BackgroundWriter(lambda whole: whole), threading.Event(), []
    for name in "ab":
        writer.write(tmp_path / name, lambda partial: (gate.wait(30), Path(partial).touch()))
    writer.finish("both", lambda: done.append(sorted(path.name for path in tmp_path.iterdir())))
    assert done == [] and not (tmp_path / "a").exists()
    gate.set()
    writer.wait()
    assert done == [["a", "b"]]


def test_a_failure_here_or_on_another_rank_leaves_it_unfinished(tmp_path, caplog):
    answers, done = iter([False]), []
    writer = BackgroundWriter(lambda whole: whole and next(answers, True))
    writer.finish("refused by another", lambda: done.append("other"))
    writer.write(tmp_path / "missing" / "file", lambda partial: Path(partial).touch())
    writer.finish("failed here", lambda: done.append("here"))
    writer.write(tmp_path / "file", lambda partial: Path(partial).touch())
    writer.finish("good", lambda: done.append("good"))
    writer.wait()
    assert done == ["good"]
    assert "missing/file was not written" in caplog.text and "refused by another is not complete" in caplog.text


def test_a_whole_is_not_finished_without_all_of_its_parts(tmp_path):
    writer, done = BackgroundWriter(lambda whole: whole), []
    parts = []
    for name in ("missing/a", "b"):
        writer.write(tmp_path / name, lambda partial: Path(partial).touch())
        parts.append(writer.finish(name, lambda: None))
    writer.finish("whole", lambda: done.append("whole"), parts)
    writer.finish("second part", lambda: done.append("second part"), parts[1:])
    writer.wait()
    assert done == ["second part"] and [part.result() for part in parts] == [False, True]


def test_what_cannot_be_finished_is_agreed_on_all_the_same():
    """Otherwise the next agreement of this rank would be paired with the last one of the others."""
    asked = []
    writer = BackgroundWriter(lambda whole: asked.append(whole) or whole)

    def fail():
        raise OSError("no space")

    writer.finish("first", fail)
    writer.finish("second", lambda: None)
    writer.wait()
    assert asked == [True, False, True, True]


def test_settling_reports_a_failure_once(tmp_path):
    writer = BackgroundWriter(lambda whole: whole)
    writer.write(tmp_path / "missing" / "file", lambda partial: Path(partial).touch())
    assert not writer.settle()
    assert writer.settle()


@pytest.mark.parametrize("fails", ["nothing", "write", "body"])
def test_together_is_complete_as_a_whole_or_not_at_all(tmp_path, fails):
    """Each rank answers the others, even after an error, because they wait for its answer."""
    asked, done = [], []

    def agree(whole):
        asked.append(whole)
        return whole

    def write(partial):
        Path(partial).touch()
        if fails == "write":
            raise OSError("no space")

    writer = BackgroundWriter(agree)
    with contextlib.suppress(ArithmeticError):
        with writer.together("both", lambda: done.append(1), lambda: done.append(2)):
            writer.write(tmp_path / "a", write)
            if fails == "body":
                raise ArithmeticError
    writer.wait()
    assert done == ([1, 2] if fails == "nothing" else [])
    assert asked == ([True] * 4 if fails == "nothing" else [False] * 2)
