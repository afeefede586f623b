# SPDX-License-Identifier: Apache-2.0
"""Programs with the lines that the documents of other checkpoint libraries show, and another import."""

import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "python"), str(TESTS / "frameworks")]

pytest_plugins = ["site_fixture"]


@pytest.fixture(scope="module")
def nursery(request, tmp_path_factory, job_site):
    """Whose ranks have imported the module that the tests' own names as NURSERY."""
    from harness import Nursery

    with Nursery(tmp_path_factory.mktemp("nursery"), request.module.NURSERY) as nursery:
        yield nursery
