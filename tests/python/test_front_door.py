# SPDX-License-Identifier: Apache-2.0
"""Each everyday mistake says what its row of docs/errors.md says, in one line that is not a fault of ours."""

import errors_page
import pytest

_STATUSES = {"", "0", "1", "2", *(kind.__name__ for kind in errors_page.tierckpt.Error.__subclasses__())}


@pytest.mark.parametrize("index", range(len(errors_page.CASES)),
                         ids=[f"{section}: {what}" for section, what, _ in errors_page.CASES])
def test_mistake_says_what_the_page_says(index):
    row = errors_page.made(index)
    assert row in errors_page.PAGE.read_text().splitlines(), "python tests/python/errors_page.py writes the page again"
    assert row.rsplit("|", 2)[1].strip() in _STATUSES - {"InternalError"} and "WRONG" not in row


def test_page_has_the_mistakes_and_no_others():
    lines = [line for line in errors_page.PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [line for line in lines if not line.startswith("| what you did")]
    assert [row.split(" | ")[0] for row in rows] == [
        errors_page.row(what, "", "").split(" | ")[0] for _, what, _ in errors_page.CASES]
