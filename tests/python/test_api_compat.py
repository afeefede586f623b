# SPDX-License-Identifier: Apache-2.0
"""An adapter is on if its framework is known, and otherwise off with one warning that names the difference."""

import logging

import pytest

from tierckpt.adapters.api_compat import RequiredApi, usable


@pytest.fixture
def messages(caplog):
    caplog.set_level(logging.WARNING, "tierckpt")
    return caplog


@pytest.mark.parametrize("required", [
    RequiredApi("json:dumps"), RequiredApi("json:dumps", ("obj", "skipkeys", "indent")),
    RequiredApi("json:JSONDecoder.decode", ("self", "s")),
])
def test_known_functions_are_usable(messages, required):
    assert usable("tierckpt.test", "pytest", [required])
    assert messages.text == ""


@pytest.mark.parametrize("required, named", [
    (RequiredApi("json:missing_one"), "json:missing_one is not there"),
    (RequiredApi("no_such_module:thing"), "no_such_module:thing is not there"),
    (RequiredApi("json:dumps", ("obj", "path")), "known are (obj, path)"),
    (RequiredApi("json:dumps", ("indent", "obj")), "json:dumps has the parameters (obj"),
])
def test_an_unknown_one_is_named_once_with_the_version(messages, required, named):
    for _ in range(2):
        assert not usable("tierckpt.test", "pytest", [RequiredApi("json:dumps"), required])
    assert messages.text.count(named) == 1
    assert f"pytest {pytest.__version__} is not known" in messages.text
