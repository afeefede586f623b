# SPDX-License-Identifier: Apache-2.0
"""The adapters beside the real frameworks. A framework that is not installed is a reported skip of its module."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

pytest_plugins = ["site_fixture"]


@pytest.fixture(scope="module")
def nursery(request, tmp_path_factory):
    """Whose ranks have imported the module that the tests' own names as NURSERY."""
    from harness import Nursery

    with Nursery(tmp_path_factory.mktemp("nursery"), request.module.NURSERY) as nursery:
        yield nursery
