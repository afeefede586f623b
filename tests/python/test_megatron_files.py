# SPDX-License-Identifier: Apache-2.0
"""The process of each rank that writes Megatron-LM's checkpoints, with the legacy format, which torch alone writes."""

import os
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed as dist

from tierckpt.adapters.megatron.order import Meeting, Order
from tierckpt.adapters.megatron.tracker import NAME, track, tracked
from tierckpt.adapters.megatron.unwritten import Unwritten
from tierckpt.adapters.megatron.write_process import WriteProcess
from tierckpt.adapters.shared_copy import SharedMemory

ENDS_WITHIN_S = 120


class Ranks:
    """The processes of two ranks, whose trainers are both this process."""

    def __init__(self, save):
        self._store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        self._memory = [SharedMemory(), SharedMemory()]
        self.processes = []
        self._save = save
        self._starts = 0

    def start(self):
        self._starts += 1
        self.processes = [WriteProcess(memory.descriptor, Meeting(rank, 2, "localhost", self._store.port, self._starts))
                          for rank, memory in enumerate(self._memory)]

    def write(self, iteration, keep=0, found=None):
        """Returns the faults of the ranks."""
        for rank, (process, memory) in enumerate(zip(self.processes, self._memory, strict=True)):
            name = str(self._save / f"iter_{iteration:07d}/mp_rank_{rank:02d}/model.pt")
            place = memory.copy(Unwritten(files={name: {"weight": torch.full((100,), iteration), "rank": rank}}))
            process.send(Order(str(self._save), iteration, "token", keep, place, found))
        return [process.outcome(ENDS_WITHIN_S).fault for process in self.processes]

    def close(self):
        for process in self.processes:
            process.end()


@pytest.fixture
def save(tmp_path):
    return tmp_path / "save"


@pytest.fixture
def ranks(save, monkeypatch):
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    started = Ranks(save)
    started.start()
    yield started
    started.close()


def names(save):
    return sorted(path.name for path in save.iterdir())


def test_directory_is_whole_and_named_and_old_ones_are_deleted(ranks, save):
    for iteration in (2, 4, 6):
        assert ranks.write(iteration, keep=2) == [None, None]
        assert (save / NAME).read_text() == str(iteration)
    assert names(save) == ["iter_0000004", "iter_0000006", NAME]
    for rank in (0, 1):
        saved = torch.load(save / f"iter_0000006/mp_rank_{rank:02d}/model.pt")
        assert saved["rank"] == rank and torch.equal(saved["weight"], torch.full((100,), 6))


def test_directory_of_another_is_left_alone(ranks, save):
    (save / "iter_0000002").mkdir(parents=True)
    (save / "iter_0000002/theirs").touch()
    faults = ranks.write(2)
    assert all(f"rank 0: IoError: {save}/iter_0000002 is there already" in fault for fault in faults)
    assert names(save) == ["iter_0000002"] and (save / "iter_0000002/theirs").exists()
    assert not any(process.alive() for process in ranks.processes)
    ranks.start()
    assert ranks.write(4) == [None, None] and tracked(str(save)) == 4


def test_own_directory_is_replaced_unless_it_is_the_newest(ranks, save):
    ranks.write(2)
    ranks.write(4)
    (save / NAME).write_text("2")
    (save / "iter_0000002/old").touch()
    (save / "iter_0000004/old").touch()
    assert ranks.write(4) == [None, None]
    assert not (save / "iter_0000004/old").exists() and tracked(str(save)) == 4
    (save / "iter_0000004/old").touch()
    assert ranks.write(4) == [None, None] and (save / "iter_0000004/old").exists()


def test_after_going_back_the_file_names_what_was_saved_since(ranks, save):
    """What it named at the start was left behind; what Megatron has saved since is later."""
    for iteration in (2, 4, 6):
        ranks.write(iteration)
    (save / "iter_0000006/old").touch()
    assert ranks.write(6, found=6) == [None, None]
    assert not (save / "iter_0000006/old").exists()
    assert ranks.write(4, found=6) == [None, None] and tracked(str(save)) == 4
    (save / NAME).write_text("5")
    assert ranks.write(3, found=6) == [None, None] and tracked(str(save)) == 5


def test_what_was_cut_off_is_deleted_by_the_next_save(ranks, save):
    (save / "tmp-iter_0000002-other").mkdir(parents=True)
    (save / "tmp-iter_0000002-other/.tierckpt").touch()
    (save / "tmp-iter_0000003-other").mkdir()
    assert ranks.write(4) == [None, None]
    assert names(save) == ["iter_0000004", NAME]


def test_file_in_the_way_is_an_error_on_all_ranks_that_names_it(ranks, save):
    save.write_text("no directory")
    for fault in ranks.write(2):
        assert "rank 0: " in fault and str(save) in fault and "directory" in fault


def test_process_that_is_killed_is_reported_by_both_and_replaced(ranks, save):
    assert ranks.write(2) == [None, None]
    ranks.processes[1].end()
    faults = ranks.write(4)
    assert faults[1] == "its process has ended with signal 9" and faults[0]
    ranks.close()
    ranks.start()
    assert ranks.write(6) == [None, None] and names(save) == ["iter_0000002", "iter_0000006", NAME]


def test_process_ends_with_its_trainer():
    program = """
import os, signal
from tierckpt.adapters.megatron.order import Meeting
from tierckpt.adapters.megatron.write_process import WriteProcess
from tierckpt.adapters.shared_copy import SharedMemory
process = WriteProcess(SharedMemory().descriptor, Meeting(0, 1, "", 0, 1))
print(process._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    trainer = subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE, check=False,
                             timeout=ENDS_WITHIN_S)
    writer, deadline = int(trainer.stdout), time.monotonic() + ENDS_WITHIN_S
    while os.path.exists(f"/proc/{writer}") and _state(writer) != "Z":
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _state(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_tracker_never_goes_back(tmp_path):
    track(str(tmp_path), 10)
    track(str(tmp_path), 4)
    assert tracked(str(tmp_path)) == 10
