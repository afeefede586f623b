# SPDX-License-Identifier: Apache-2.0
"""Fixtures for all tests of the package."""

import shutil

import pytest

from place import TOP, Site


@pytest.fixture(scope="session")
def top():
    return TOP


@pytest.fixture
def site(request):
    site = Site()
    yield site
    site.kill_agents()
    report = getattr(request.node, "report", None)
    if report is not None and report.failed:
        print(site.logs())
    shutil.rmtree(site.dir, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.report = outcome.get_result()
