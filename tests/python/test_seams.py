# SPDX-License-Identifier: Apache-2.0
"""An adapter is on if its framework is as known, and off with one warning that names what is not."""

import logging

import pytest
from tierckpt.seams import Seam, usable


@pytest.fixture
def messages(caplog):
    caplog.set_level(logging.WARNING, "tierckpt")
    return caplog


@pytest.mark.parametrize("seam", [
    Seam("json:dumps"), Seam("json:dumps", ("obj", "skipkeys", "indent")), Seam("json:JSONDecoder.decode", ("self", "s")),
])
def test_known_functions_are_usable(messages, seam):
    assert usable("tierckpt.test", "pytest", [seam])
    assert messages.text == ""


@pytest.mark.parametrize("seam, named", [
    (Seam("json:missing_one"), "json:missing_one is not there"),
    (Seam("no_such_module:thing"), "no_such_module:thing is not there"),
    (Seam("json:dumps", ("obj", "path")), "known are (obj, path)"),
    (Seam("json:dumps", ("indent", "obj")), "json:dumps has the parameters (obj"),
])
def test_an_unknown_one_is_named_once_with_the_version(messages, seam, named):
    for _ in range(2):
        assert not usable("tierckpt.test", "pytest", [Seam("json:dumps"), seam])
    assert messages.text.count(named) == 1
    assert f"pytest {pytest.__version__} is not known" in messages.text
