# SPDX-License-Identifier: Apache-2.0
"""The directory that a Trainer resumes from is removed at the end of its process, or by the next one if that was
killed."""
import os
import signal
import subprocess
import sys
import tempfile

import pytest

from tierckpt.adapters import resume_dir

HOLD = "from tierckpt.adapters.resume_dir import resume_directory\n" \
       "with resume_directory() as d: print(d, flush=True); input()\n"
LONG_AGO = 1e9


@pytest.fixture(autouse=True)
def own_tmp(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def holder(own_tmp):
    """A process that has such a directory, and its path."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               env={**os.environ, "TMPDIR": str(own_tmp), "PYTHONPATH": os.pathsep.join(sys.path)})
    path = process.stdout.readline().strip()
    os.utime(path, (LONG_AGO, LONG_AGO))
    yield process, path
    process.kill()
    process.communicate()


def test_it_goes_with_the_block(own_tmp):
    with resume_dir.resume_directory() as path:
        assert os.listdir(own_tmp) == [os.path.basename(path)]
        assert os.stat(path).st_mode & 0o777 == 0o700
    assert os.listdir(own_tmp) == []


def test_one_in_use_stays(holder):
    with resume_dir.resume_directory():
        assert os.path.isdir(holder[1])


def test_one_of_a_killed_process_goes(holder):
    process, path = holder
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert os.path.isdir(path)
    with resume_dir.resume_directory():
        assert not os.path.exists(path)


def test_directories_of_others_stay(own_tmp):
    for name in ("tierckpt-0", "tierckpt-resume-file"):
        (own_tmp / name).touch() if name.endswith("file") else (own_tmp / name).mkdir()
        os.utime(own_tmp / name, (LONG_AGO, LONG_AGO))
    with resume_dir.resume_directory():
        pass
    assert sorted(os.listdir(own_tmp)) == ["tierckpt-0", "tierckpt-resume-file"]
