# SPDX-License-Identifier: Apache-2.0
"""Tests of the adapters with the real frameworks. If a framework is not installed, its module is reported as
skipped."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))

pytest_plugins = ["site_fixture"]


@pytest.fixture(scope="module")
def nursery(request, tmp_path_factory):
    """A nursery whose ranks have already imported the module that the test module names in NURSERY."""
    from harness import Nursery

    with Nursery(tmp_path_factory.mktemp("nursery"), request.module.NURSERY) as nursery:
        yield nursery
