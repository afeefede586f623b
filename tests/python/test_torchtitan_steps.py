# SPDX-License-Identifier: Apache-2.0
"""The directories step-N that stand for published versions: made and removed with them, and nothing else is touched."""

import json
import logging
import os
import shutil
import threading

import pytest

from tierckpt.adapters.torchtitan_steps import StepDirectories


class Place:
    def __init__(self, path, keep=0):
        self.folder, self.job = path / "checkpoint", path / "save/job"
        self.folder.mkdir()
        self.job.mkdir(parents=True)
        self.steps = StepDirectories(str(self.folder), str(path / "save"), "job", keep)

    def publish(self, step, term=1, metadata=b"shard-1.safetensors"):
        version = self.job / f"v{step:012d}.t{term}"
        version.mkdir()
        (version / "shard-1.safetensors").write_bytes(b"numbers")
        of_metadata = {}
        if metadata:
            (version / ".metadata").write_bytes(metadata)
            of_metadata = {"metadata": {"bytes": len(metadata)}}
        (version / "manifest.json").write_text(json.dumps({"job": "job", "term": term, "step": step, **of_metadata}))
        return version

    def found(self):
        self.steps.settle()
        return sorted(os.listdir(self.folder))


@pytest.fixture
def place(tmp_path):
    place = Place(tmp_path)
    yield place
    place.steps.close()


def test_each_version_with_metadata_has_one_that_goes_with_it(place):
    first = place.publish(5)
    place.publish(7, metadata=None)
    place.publish(10)
    assert place.found() == ["step-10", "step-5"]
    assert (place.folder / "step-5/shard-1.safetensors").samefile(first / "shard-1.safetensors")
    shutil.rmtree(first)
    assert place.found() == ["step-10"]


def test_a_step_that_was_saved_again_is_that_of_the_newest_term(place):
    place.publish(5)
    assert place.found() == ["step-5"]
    again = place.publish(5, term=3)
    assert place.found() == ["step-5"]
    assert (place.folder / "step-5/.metadata").samefile(again / ".metadata")


def test_the_end_waits_for_the_agents_to_delete_what_is_too_old(tmp_path):
    place = Place(tmp_path, keep=2)
    oldest, *_ = [place.publish(step) for step in (1, 2, 3)]
    gone = threading.Timer(0.5, shutil.rmtree, [oldest])
    gone.start()
    place.steps.close()
    gone.join()
    assert sorted(os.listdir(place.folder)) == ["step-2", "step-3"]


def test_what_others_have_written_stays(place):
    for name in ("step-3", "step-5", "step-8", "notes"):
        (place.folder / name).mkdir()
    (place.folder / "step-3/.metadata").write_bytes(b"__0_0.distcp")
    (place.folder / "step-5/.metadata").write_bytes(b"__0_0.distcp")
    (place.folder / "step-8/manifest.json").write_text(json.dumps({"job": "another", "term": 1, "step": 8}))
    place.publish(5)
    assert place.found() == ["notes", "step-3", "step-5", "step-8"]
    assert os.listdir(place.folder / "step-5") == [".metadata"]


def test_a_directory_that_torch_has_written_to_since_stays(place):
    version = place.publish(5)
    assert place.found() == ["step-5"]
    shutil.rmtree(version)
    os.replace(shutil.copy(place.folder / "step-5/.metadata", place.folder / "new"), place.folder / "step-5/.metadata")
    (place.folder / "step-5/.metadata").write_bytes(b"__0_0.distcp")
    assert place.found() == ["step-5"]


def test_what_a_killed_process_was_removing_is_removed(place):
    (place.folder / ".tierckpt-gone-4").mkdir()
    assert place.found() == []


def test_without_hard_links_there_is_one_warning(place, monkeypatch, caplog):
    def refuse(*_arguments, **_named):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    place.publish(5)
    with caplog.at_level(logging.WARNING, "tierckpt"):
        assert place.found() == [] and place.found() == []
    assert len(caplog.records) == 1 and "step-N cannot be made" in caplog.text


def test_a_look_updates_only_when_another_step_is_published(place):
    place.publish(5)
    place.steps.look(0)
    assert place.steps._last is None
    place.steps.look(5)
    assert place.found() == ["step-5"]
