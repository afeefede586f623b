# SPDX-License-Identifier: Apache-2.0
"""The configuration as users write it: the base of relative paths, and what is refused."""

import json
import subprocess

import pytest

import tierckpt
from tierckpt.runtime import settings


def test_path_of_a_file_begins_where_the_file_lies(tmp_path, monkeypatch):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/job.json").write_text(json.dumps({
        "job": "x", "save_dir": "ckpt", "token_file": "/t", "load_dir": "~/old", "log_file_path": "s3://b/l"}))
    monkeypatch.chdir(tmp_path)
    assert settings.values_of_file("etc/job.json") == {
        "job": "x", "save_dir": str(tmp_path / "etc/ckpt"), "token_file": "/t", "load_dir": "~/old",
        "log_file_path": "s3://b/l"}


@pytest.mark.parametrize("text, why", [("[1]", "one JSON object"), ("{", "job.json: Expecting"),
                                       (None, "No such file")])
def test_bad_file_is_a_configuration_error(tmp_path, text, why):
    if text is not None:
        (tmp_path / "job.json").write_text(text)
    with pytest.raises(tierckpt.ConfigError, match=why):
        settings.values_of_file(tmp_path / "job.json")


def test_names_of_keys_say_which_are_paths():
    page = subprocess.run(["tierckpt", "config", "--markdown"], capture_output=True, text=True, check=True).stdout
    keys = {line.split("`")[1]: "` (a path" in line for line in page.splitlines() if line.startswith("- `")}
    assert len(keys) > 30
    for key, is_path in keys.items():
        assert key.endswith(settings.PATH_ENDINGS) == is_path, key


def test_save_dir_of_a_framework_is_made_but_for_itself(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert settings.save_dir_at("out/run", "tierckpt") == str(tmp_path / "out/run/tierckpt")
    assert (tmp_path / "out/run").is_dir() and not (tmp_path / "out/run/tierckpt").exists()
    with pytest.raises(tierckpt.ConfigError, match="s3://bucket/run/tierckpt, and that is a URL"):
        settings.save_dir_at("s3://bucket/run", "tierckpt")


def test_a_store_of_objects_is_no_directory(tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    assert settings.local_save_dir("out", "x") == str(tmp_path / "out")
    with pytest.raises(tierckpt.ConfigError, match="s3://b/p is in a store of objects, and links go there: give"):
        settings.local_save_dir("s3://b/p", "links go there")
    mounts = tmp_path / "mounts"
    mounts.write_text(f"tmpfs {tmp_path} tmpfs rw 0 0\n")
    settings.warn_of_memory({"save_dir": "s3://b/p"}, None, mounts=str(mounts))
    assert caplog.text == ""


@pytest.mark.parametrize("save_dir, warned", [("/dev/shm/x", True), ("/dev/shm/disk/x", False), ("/data/x", False)])
def test_storage_in_memory_is_warned_of(tmp_path, caplog, save_dir, warned):
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda / ext4 rw 0 0\ntmpfs /dev/shm tmpfs rw 0 0\n/dev/sdb /dev/shm/disk ext4 rw 0 0\n")
    settings.warn_of_memory({"save_dir": save_dir}, None, mounts=str(mounts))
    assert ("is on a file system in memory" in caplog.text) is warned
