# SPDX-License-Identifier: Apache-2.0
"""extra_state as programs use it: parts of it referenced by variables, and similar names."""

import collections
import enum

import torch
from torch import nn

import tierckpt


def saved_and_loaded(site, extra, change):
    """Returns the state of a restarted program, and the parts that it had references to, after its predecessor saved
    `change`."""
    checkpoint = tierckpt.init(model=nn.Linear(1, 1), extra_state=extra(), config=site.config)
    change(checkpoint._registration.given.extra_state)
    checkpoint.save_checkpoint(1)
    checkpoint.wait("committed")
    checkpoint.close(job_done=False)
    again = extra()
    parts = dict(again)
    checkpoint = tierckpt.init(model=nn.Linear(1, 1), extra_state=again, config=site.config)
    assert checkpoint.load_checkpoint() == 1
    checkpoint.close()
    return again, parts


def test_what_the_program_holds_inside_of_it_is_changed_and_not_exchanged(site):
    def make():
        return {"position": {"epoch": 0, "seen": [1]}, "history": [0.5], "words": collections.Counter()}

    def go_on(extra):
        extra["position"]["epoch"] = 3
        extra["position"]["seen"].append(2)
        extra["history"] += [0.25, 0.125]
        extra["words"]["a"] += 2

    again, parts = saved_and_loaded(site, make, go_on)
    assert parts == {"position": {"epoch": 3, "seen": [1, 2]}, "history": [0.5, 0.25, 0.125], "words": {"a": 2}}
    assert all(again[key] is parts[key] for key in parts) and type(again["words"]) is collections.Counter


def test_tensors_whose_names_look_alike_are_not_mixed_up(site):
    def make():
        return {"a.b": torch.zeros(1), "a": {"b": torch.zeros(1)}, 1: torch.zeros(1), "1": torch.zeros(1)}

    def go_on(extra):
        for number, tensor in enumerate((extra["a.b"], extra["a"]["b"], extra[1], extra["1"]), start=1):
            tensor.fill_(number)

    again, _ = saved_and_loaded(site, make, go_on)
    assert [tensor.item() for tensor in (again["a.b"], again["a"]["b"], again[1], again["1"])] == [1, 2, 3, 4]


class Phase(str, enum.Enum):
    FIRST, SECOND = "first", "second"


class Level(enum.IntEnum):
    LOW, HIGH = 1, 2


def test_a_member_of_an_enumeration_is_one_again(site):
    def make():
        return {"phase": Phase.FIRST, "levels": [Level.LOW, 2]}

    def go_on(extra):
        extra["phase"], extra["levels"] = Phase.SECOND, [Level.HIGH, 1]

    again, _ = saved_and_loaded(site, make, go_on)
    assert again["phase"] is Phase.SECOND and again["levels"][0] is Level.HIGH
    assert again["levels"][1] == 1 and type(again["levels"][1]) is int
