# SPDX-License-Identifier: Apache-2.0
"""Each everyday mistake produces the text of its entry in docs/errors.md, in one line, and no internal error."""

import pytest

import errors_page

_STATUSES = {"", "0", "1", "2", *(kind.__name__ for kind in errors_page.tierckpt.Error.__subclasses__())}


@pytest.mark.parametrize("index", range(len(errors_page.CASES)),
                         ids=[f"{section}: {what}" for section, what, _ in errors_page.CASES])
def test_mistake_says_what_the_page_says(index):
    _section, what, function = errors_page.CASES[index]
    with errors_page.a_site() as site:
        said, status = errors_page.outcome(site, function)
    assert errors_page.row(what, said, status) in errors_page.PAGE.read_text(), \
        "python tests/python/errors_page.py regenerates the page"
    assert status in _STATUSES - {"InternalError"} and "WRONG" not in said


def test_page_has_the_mistakes_and_no_others():
    entries = [line for line in errors_page.PAGE.read_text().splitlines() if line.startswith("- ")]
    assert entries == [errors_page.row(what, "", "").split("\n")[0] for _, what, _ in errors_page.CASES]
