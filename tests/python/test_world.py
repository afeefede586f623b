# SPDX-License-Identifier: Apache-2.0
import ctypes

import pytest

from tierckpt import InvalidArgumentError
from tierckpt.runtime.world import Oob, join_world


def call(oob, length=2):
    mine, out = (ctypes.c_ubyte * 2)(1, 2), (ctypes.c_ubyte * 4)()
    return oob.callback(None, ctypes.addressof(mine), ctypes.addressof(out), length), list(out)


def test_parts_are_views_of_the_callers_memory():
    def gather(parts, mine):
        for number, part in enumerate(parts):
            part.copy_(mine + 10 * number)

    assert call(Oob(2, gather)) == (0, [1, 2, 11, 12])


def test_exception_passes_around_the_library():
    def gather(parts, mine):
        raise RuntimeError("connection closed by peer")

    oob = Oob(2, gather)
    code, _ = call(oob)
    assert code != 0
    with pytest.raises(RuntimeError, match="closed by peer"):
        oob.reraise()
    oob.reraise()  # only once


def test_nothing_is_gathered_for_no_bytes():
    assert call(Oob(2, pytest.fail), length=0)[0] == 0


def test_rank_of_a_job_without_process_group_is_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InvalidArgumentError, match="init_process_group"):
        join_world()
