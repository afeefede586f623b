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


@pytest.fixture(scope="module")
def job_site():
    """The place of all jobs of a module whose programs configure nothing: the environment says where agents run."""
    site = Site()
    site.config["job"] = ""  # agents of any job
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIERCKPT_RUNTIME_DIR", site.config["runtime_dir"])
        yield site
        site.kill_agents()
        shutil.rmtree(site.dir, ignore_errors=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    if call.when == "call":
        item.report = outcome.get_result()
