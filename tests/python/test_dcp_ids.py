# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint id names, and the directory that is made for it."""

import errno
import os
import shutil
from pathlib import Path

import pytest

import tierckpt
from tierckpt.adapters import dcp_directory
from tierckpt.adapters.dcp_ids import named, named_part, of_all_shards


@pytest.mark.parametrize("checkpoint_id, number, series, home", [
    ("/runs/checkpoint", None, "/runs/checkpoint", "/runs"),
    ("/runs/step-120", 120, "/runs/step-#", "/runs"),
    ("/runs/step-0120/", 120, "/runs/step-#", "/runs"),
    ("/runs/120", 120, "/runs/#", "/runs"),
    ("/runs/step-0", None, "/runs/step-0", "/runs"),
    ("/runs/step-7/model", 7, "/runs/step-#/model", "/runs"),
    ("/runs/7/optim", 7, "/runs/#/optim", "/runs"),
    ("/runs/run7/optim", None, "/runs/run7/optim", "/runs/run7"),
    ("/runs/7/step-8", 8, "/runs/7/step-#", "/runs/7"),
])
def test_id_names_number_and_series(checkpoint_id, number, series, home):
    name = named(checkpoint_id)
    assert (name.number, name.series, name.home) == (number, series, home)
    assert name.path == os.path.abspath(checkpoint_id)


@pytest.mark.parametrize("checkpoint_id, number, series, home", [
    ("/a/tp0_ep0_fsdp3", None, "/a/tp0_ep0_fsdp3", "/a"),
    ("/a/step-120/tp0_fsdp3", 120, "/a/step-#/tp0_fsdp3", "/a"),
    ("/a/global_step120/tp1", 120, "/a/global_step#/tp1", "/a"),
    ("/a/9/tp0_ep0", 9, "/a/#/tp0_ep0", "/a"),
    ("/run7/checkpoint-5", 5, "/run7/checkpoint-#", "/run7"),
    ("/run7/tp0_ep0", None, "/run7/tp0_ep0", "/run7"),
])
def test_number_of_a_rank_is_not_that_of_a_checkpoint(checkpoint_id, number, series, home):
    name = named_part(checkpoint_id)
    assert (name.path, name.number, name.series, name.home) == (checkpoint_id, number, series, home)


def test_all_shards_are_one_series():
    shards = [of_all_shards(named_part(f"/a/step-{step}/tp0_ep0_fsdp{shard}")) for step, shard in ((1, 0), (2, 3))]
    assert shards[0].series == shards[1].series and shards[0].path != shards[1].path


def test_number_is_the_id_of_a_directory_here(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert named(12) == named("12") == named(tmp_path / "12")


def test_directory_of_a_part_has_the_manifest_the_index_and_its_own_files(tmp_path):
    (tmp_path / "version").mkdir()
    for name in (".index", "manifest.json", "shard-0.safetensors", "shard-1.safetensors"):
        (tmp_path / "version" / name).touch()
    dcp_directory.place(tmp_path / "version", tmp_path / "part", {"shard-1.safetensors"})
    assert sorted(os.listdir(tmp_path / "part")) == [".index", "manifest.json", "shard-1.safetensors"]


@pytest.mark.parametrize("checkpoint_id, number, series, home", [
    ("s3://bucket//runs/./step-7/", 7, "s3://bucket/runs/step-#", "s3://bucket/runs"),
    ("s3://checkpoint-1/step-7/model", 7, "s3://checkpoint-1/step-#/model", "s3://checkpoint-1/"),
    ("s3://checkpoint-1/model", None, "s3://checkpoint-1/model", "s3://checkpoint-1/"),
])
def test_id_in_a_bucket_names_number_and_series(checkpoint_id, number, series, home):
    name = named(checkpoint_id)
    assert (name.number, name.series, name.home) == (number, series, home)
    assert name.in_bucket and not named("/runs/step-7").in_bucket


def test_name_of_a_bucket_is_no_step_of_a_shard():
    assert named_part("s3://step-3/tp0_fsdp1").number is None
    assert named_part("s3://step-3/step-5/tp0_fsdp1").home == "s3://step-3/"


@pytest.mark.parametrize("checkpoint_id, text", [
    ("", "is no path"), ("a\0b", "is no path"),
    ("s3://bucket", "is a bucket: give a path in it"), ("s3://bucket//", "is a bucket: give a path in it"),
    (Path("s3://bucket/step-1"), "s3:/bucket/step-1 has lost a slash.* s3://bucket/step-1"),
])
def test_what_names_no_place_is_refused(checkpoint_id, text):
    with pytest.raises(tierckpt.InvalidArgumentError, match=text):
        named(checkpoint_id)


def test_url_of_something_else_is_refused():
    with pytest.raises(tierckpt.UnsupportedError, match="gs://bucket/x is a URL: .* storage_writer="):
        named("gs://bucket/x")


# ---- the directory


def version(tmp_path, step, files=("shard-1.safetensors", "shard-2.safetensors", ".index")):
    directory = tmp_path / f"v{step}"
    directory.mkdir()
    for name in files:
        (directory / name).write_text(str(step))
    (directory / "manifest.json").write_text(f'{{"job": "j", "term": 1, "step": {step}}}')
    return directory


def contents(directory):
    return {path.name: path.read_text() for path in directory.iterdir() if path.name != "manifest.json"}


@pytest.fixture(params=["at once", "in two steps"])
def put(request, monkeypatch):
    """place, also on a file system that cannot exchange two directories."""
    if request.param == "in two steps":
        monkeypatch.setattr(dcp_directory, "_exchange", lambda one, other: False)
    return dcp_directory.place


def test_directory_has_the_files_of_the_version_and_no_copies_of_them(tmp_path, put):
    made = version(tmp_path, 1)
    put(made, tmp_path / "a/b")
    assert os.path.samefile(made / "shard-1.safetensors", tmp_path / "a/b/shard-1.safetensors")
    assert dcp_directory.version_at(tmp_path / "a/b") == ("j", (1, 1))
    assert os.listdir(tmp_path / "a") == ["b"]


def test_next_checkpoint_replaces_the_files_of_the_last_and_no_others(tmp_path, put):
    put(version(tmp_path, 1), tmp_path / "x")
    (tmp_path / "x/notes.txt").write_text("mine")
    put(version(tmp_path, 2, ["shard-2.safetensors"]), tmp_path / "x")
    assert contents(tmp_path / "x") == {"shard-2.safetensors": "2", "notes.txt": "mine"}
    assert dcp_directory.version_at(tmp_path / "x") == ("j", (1, 2))
    assert sorted(os.listdir(tmp_path)) == ["v1", "v2", "x"]


def test_checkpoint_of_torch_is_replaced_as_torch_would(tmp_path, put):
    (tmp_path / "x").mkdir()
    for name in (".metadata", "__0_0.distcp", "config.json"):
        (tmp_path / "x" / name).write_text("")
    assert dcp_directory.is_of_torch(tmp_path / "x") and dcp_directory.version_at(tmp_path / "x") is None
    put(version(tmp_path, 1, ["shard-1.safetensors"]), tmp_path / "x")
    assert contents(tmp_path / "x") == {"shard-1.safetensors": "1", "config.json": ""}


def moved_aside(tmp_path):
    """What a process leaves that dies between the two steps of a replacement. Returns the directory of the last
    checkpoint."""
    dcp_directory.place(version(tmp_path, 1), tmp_path / "x")
    (tmp_path / "x/notes.txt").write_text("mine")
    aside = dcp_directory._sibling(tmp_path / "x", "old")
    os.rename(tmp_path / "x", aside)
    return aside


def test_replacement_that_was_interrupted_is_read_as_it_is_and_finished_by_the_next_save(tmp_path, put):
    aside = moved_aside(tmp_path)
    assert dcp_directory.version_at(tmp_path / "x") == ("j", (1, 1))
    assert dcp_directory.present(str(tmp_path / "x")) == str(aside)
    assert sorted(os.listdir(tmp_path)) == sorted([aside.name, "v1"])
    put(version(tmp_path, 2, ["shard-2.safetensors"]), tmp_path / "x")
    assert contents(tmp_path / "x") == {"shard-2.safetensors": "2", "notes.txt": "mine"}
    assert sorted(os.listdir(tmp_path)) == ["v1", "v2", "x"]


def test_checkpoint_of_torch_that_was_moved_aside_is_read_as_it_is(tmp_path):
    (tmp_path / "x").mkdir()
    (tmp_path / "x/.metadata").touch()
    aside = dcp_directory._sibling(tmp_path / "x", "old")
    os.rename(tmp_path / "x", aside)
    assert dcp_directory.is_of_torch(tmp_path / "x") and dcp_directory.present(str(tmp_path / "x")) == str(aside)


def test_what_was_moved_aside_is_no_checkpoint_beside_a_directory(tmp_path):
    aside = moved_aside(tmp_path)
    (tmp_path / "x").mkdir()
    assert dcp_directory.version_at(tmp_path / "x") is None
    assert dcp_directory.present(str(tmp_path / "x")) == str(tmp_path / "x") and aside.is_dir()


def calls_with(monkeypatch, module, name, before):
    """Makes a function of a module call `before`, which may call the function, with the same arguments first."""
    original = getattr(module, name)

    def function(*arguments, **keywords):
        monkeypatch.setattr(module, name, original)
        try:
            before(*arguments)
        finally:
            monkeypatch.setattr(module, name, function)
        return original(*arguments, **keywords)

    monkeypatch.setattr(module, name, function)


@pytest.mark.parametrize("module, name", [(os, "rename"), (os, "link"), (shutil, "rmtree")],
                         ids=["rename", "link", "rmtree"])
def test_reader_finds_a_checkpoint_during_a_save_and_leaves_it_alone(tmp_path, put, monkeypatch, module, name):
    put(version(tmp_path, 1), tmp_path / "x")
    (tmp_path / "x/notes.txt").write_text("mine")
    made, found = version(tmp_path, 2), []

    def read(*_):
        found.append(dcp_directory.version_at(tmp_path / "x"))
        assert dcp_directory._version_in(Path(dcp_directory.present(str(tmp_path / "x")))) == found[-1]

    calls_with(monkeypatch, module, name, read)
    put(made, tmp_path / "x")
    assert found and set(found) <= {("j", (1, 1)), ("j", (1, 2))}
    assert contents(tmp_path / "x")["notes.txt"] == "mine" and dcp_directory.version_at(tmp_path / "x") == ("j", (1, 2))
    assert sorted(os.listdir(tmp_path)) == ["v1", "v2", "x"]


@pytest.mark.parametrize("stale", [False, True])
def test_checkpoint_is_found_if_a_save_ends_between_the_looks(tmp_path, monkeypatch, stale):
    """Also over NFS, where the directory that another machine has deleted gives a stale handle."""
    dcp_directory.place(version(tmp_path, 2), tmp_path / "new")
    aside = moved_aside(tmp_path)
    looks, look = [], dcp_directory._version_in

    def late(directory):
        looks.append(directory)
        if directory == aside:  # it is gone before it could be read
            os.rename(tmp_path / "new", tmp_path / "x")
            shutil.rmtree(aside)
            if stale:
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return look(directory)

    monkeypatch.setattr(dcp_directory, "_version_in", late)
    assert dcp_directory.version_at(tmp_path / "x") == ("j", (1, 2))
    assert looks == [tmp_path / "x", aside, tmp_path / "x"]


def test_handle_that_stays_stale_is_an_error(tmp_path, monkeypatch):
    def stale(_):
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(dcp_directory, "_version_in", stale)
    with pytest.raises(tierckpt.IoError, match="manifest.json cannot be read: .*[Ss]tale"):
        dcp_directory.version_at(tmp_path)


def test_another_process_may_delete_what_is_replaced(tmp_path, put, monkeypatch):
    put(version(tmp_path, 1), tmp_path / "x")
    (tmp_path / "x/notes.txt").write_text("mine")
    calls_with(monkeypatch, shutil, "rmtree", lambda directory: shutil.rmtree(directory, ignore_errors=True))
    put(version(tmp_path, 2), tmp_path / "x")
    assert contents(tmp_path / "x")["notes.txt"] == "mine" and sorted(os.listdir(tmp_path)) == ["v1", "v2", "x"]


def test_save_succeeds_with_a_warning_if_what_it_replaces_cannot_be_deleted(tmp_path, put, monkeypatch, caplog):
    def refuse(path, ignore_errors=False):
        if os.path.exists(path) and not ignore_errors:
            raise OSError(errno.EBUSY, "busy", str(path))

    put(version(tmp_path, 1), tmp_path / "x")
    (tmp_path / "x/notes.txt").write_text("mine")
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        put(version(tmp_path, 2, ["shard-2.safetensors"]), tmp_path / "x")
    assert "x: the new checkpoint is there, but the one that it replaces cannot be deleted: " in caplog.text
    assert contents(tmp_path / "x") == {"shard-2.safetensors": "2", "notes.txt": "mine"}
    left, = (path for path in tmp_path.iterdir() if path.name.startswith("."))
    assert dcp_directory._version_in(left) is None
    put(version(tmp_path, 3), tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == ["v1", "v2", "v3", "x"]


def test_other_files_survive_a_save_that_is_killed_after_the_exchange(tmp_path, put):
    """What was replaced then has the name of a directory that is made."""
    put(version(tmp_path, 1), tmp_path / "x")
    new = dcp_directory._sibling(tmp_path / "x", "new")
    shutil.copytree(version(tmp_path, 2), new)
    (new / "notes.txt").write_text("mine")
    put(version(tmp_path, 3, ["shard-1.safetensors"]), tmp_path / "x")
    assert contents(tmp_path / "x") == {"shard-1.safetensors": "3", "notes.txt": "mine"}


def test_directory_stays_if_its_replacement_cannot_be_moved_there(tmp_path, monkeypatch):
    def refuse(source, target):
        if source == dcp_directory._sibling(tmp_path / "x", "new"):
            raise OSError(errno.EIO, "broken", str(target))
        os.replace(source, target)

    dcp_directory.place(version(tmp_path, 1), tmp_path / "x")
    monkeypatch.setattr(dcp_directory, "_exchange", lambda one, other: False)
    monkeypatch.setattr(os, "rename", refuse)
    with pytest.raises(tierckpt.IoError, match="cannot be linked there: .*broken"):
        dcp_directory.place(version(tmp_path, 2), tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == ["v1", "v2", "x"] and contents(tmp_path / "x")["shard-1.safetensors"] == "1"


@pytest.mark.parametrize("there", [True, False])
def test_link_stays_and_its_target_is_the_directory(tmp_path, put, there):
    if there:
        put(version(tmp_path, 1), tmp_path / "target")
        (tmp_path / "target/notes.txt").write_text("mine")
    (tmp_path / "x").symlink_to("target")
    put(version(tmp_path, 2, ["shard-1.safetensors"]), tmp_path / "x")
    assert (tmp_path / "x").is_symlink() and dcp_directory.version_at(tmp_path / "x") == ("j", (1, 2))
    assert contents(tmp_path / "target") == {"shard-1.safetensors": "2", **({"notes.txt": "mine"} if there else {})}


def test_place_that_is_taken_by_a_file_is_an_error_that_leaves_nothing(tmp_path):
    (tmp_path / "x").write_text("mine")
    with pytest.raises(tierckpt.IoError, match="x: the files of .*v1 cannot be linked there: .*Not a directory"):
        dcp_directory.place(version(tmp_path, 1), tmp_path / "x")
    assert sorted(os.listdir(tmp_path)) == ["v1", "x"] and (tmp_path / "x").read_text() == "mine"


def test_manifest_that_cannot_be_read_is_not_taken_for_none(tmp_path):
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(tierckpt.IoError, match="manifest.json cannot be read"):
        dcp_directory.version_at(tmp_path)
