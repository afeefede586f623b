# SPDX-License-Identifier: Apache-2.0
"""When a step for storage becomes a checkpoint of Megatron-LM, with processes and a Megatron that are fakes."""

import logging
import types

import pytest

from tierckpt.adapters.megatron import stock_saves
from tierckpt.adapters.megatron.order import Outcome
from tierckpt.adapters.megatron.unwritten import Unwritten
from tierckpt.runtime.world import Oob, World


class Process:
    """Writes nothing."""

    made = []

    def __init__(self, _memory, meeting):
        self.meeting, self.sent, self.result, self.gone, self.ended = meeting, [], None, False, False
        Process.made.append(self)

    @property
    def busy(self):
        return bool(self.sent) and not self.ended

    def alive(self):
        return not self.gone

    def send(self, order):
        self.sent.append(order)

    def outcome(self, _timeout=0):
        if not self.busy or self.result is None:
            return None
        fault, self.result = self.result, None
        return Outcome(self.sent.pop().iteration, fault or None)

    def end(self):
        self.ended = True


@pytest.fixture
def saves(tmp_path, monkeypatch):
    Process.made = []
    monkeypatch.setattr(stock_saves, "WriteProcess", Process)
    monkeypatch.setattr(stock_saves, "usable", lambda *_: True)
    done = []
    monkeypatch.setattr(stock_saves.unwritten, "build",
                        lambda _args, save: Unwritten(files={"a": save()}, afterwards=[lambda: done.append(True)]))
    args = types.SimpleNamespace(save=str(tmp_path), save_interval=None, train_iters=100)
    made = stock_saves.StockSaves(args, World(0, 1, Oob()), 3)
    made.args, made.done = args, done
    yield made
    made.close()


def save(saves, iteration):
    saves.save(iteration, [], None, None, 0, lambda: iteration)


def sent():
    return [order.iteration for process in Process.made for order in process.sent]


def test_step_during_a_write_is_skipped_with_one_warning(saves, caplog):
    caplog.set_level(logging.INFO, "tierckpt")
    for iteration in (2, 4, 6):
        save(saves, iteration)
    assert sent() == [2] and saves.skipped == 2 and saves.health.well
    levels = [record.levelno for record in caplog.records if "is not written to storage" in record.message]
    assert levels == [logging.WARNING, logging.INFO]
    Process.made[0].result = ""
    save(saves, 8)
    assert sent() == [8] and saves.done == [True]


def test_failure_is_in_the_log_and_in_the_health_until_the_next_success(saves, caplog):
    save(saves, 2)
    Process.made[0].result = "rank 3: no space"
    saves.look()
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.message == f"{saves.args.save}/iter_0000002 was not written: rank 3: no space"
    assert not saves.health.well and not saves.finish() and saves.done == []
    Process.made[0].gone = True
    save(saves, 4)
    Process.made[1].result = ""
    assert saves.finish() and saves.health.well
    assert [process.meeting.attempt for process in Process.made] == [1, 2] and Process.made[0].ended


def test_process_that_is_gone_does_not_keep_the_others_waiting(saves, caplog):
    save(saves, 2)
    Process.made[0].gone = True
    save(saves, 4)
    assert "iter_0000002 was not written: the process of rank 0 has ended" in caplog.text
    assert Process.made[0].ended and [order.iteration for order in Process.made[1].sent] == [4] and saves.skipped == 0


def test_write_that_does_not_end_is_trouble_with_storage(saves, monkeypatch):
    save(saves, 2)
    later = stock_saves.time.monotonic() + 1000
    monkeypatch.setattr(stock_saves.time, "monotonic", lambda: later)
    save(saves, 4)
    assert not saves.health.well and not saves.finish(timeout=0)


@pytest.mark.parametrize("iteration, writes", [(99, True), (100, False), (50, False), (60, True)])
def test_what_megatron_saves_by_itself_is_not_saved_twice(saves, iteration, writes):
    saves.args.save_interval = 50
    save(saves, iteration)
    assert bool(sent()) == writes


def test_same_iteration_is_saved_once_unless_it_has_failed(saves):
    save(saves, 2)
    save(saves, 2)
    assert sent() == [2] and saves.skipped == 0
    Process.made[0].result = ""
    save(saves, 2)
    assert sent() == []
    save(saves, 4)
    Process.made[0].result = "no space"
    save(saves, 4)
    assert sent() == [4]


def test_state_that_cannot_be_copied_is_reported_and_training_goes_on(saves, caplog):
    saves.save(2, [], None, None, 0, lambda: lambda: None)  # a function that pickle cannot handle
    assert sent() == [] and "iter_0000002 was not written: rank 0 could not copy it: " in caplog.text
    assert not saves.health.well
