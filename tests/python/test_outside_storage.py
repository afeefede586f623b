# SPDX-License-Identifier: Apache-2.0
"""Trouble with what an adapter writes to storage, in the health of a checkpoint."""

import time

from tierckpt.core.outside_storage import OutsideStorage
from tierckpt.runtime.native import Health

GOOD = Health(True, False, True, None, None, None, 0, 0, 0, False, "", "", "")


def test_failures_are_shown_until_something_is_written():
    storage = OutsideStorage()
    assert storage.well and storage.shown_in(GOOD) is GOOD
    before = time.time()
    storage.failed(10, "iter_10: no space")
    storage.failed(20, "iter_20: no space")
    shown = storage.shown_in(GOOD)
    assert not storage.well and not shown.storage_ok and shown.storage_text == "iter_20: no space"
    assert (shown.undrained_first, shown.undrained_newest, shown.undrained_count) == (10, 20, 2)
    assert before <= shown.storage_since <= time.time() and shown.agent_connected
    storage.worked()
    assert storage.well and storage.shown_in(GOOD) is GOOD
