# SPDX-License-Identifier: Apache-2.0
"""Requests to the agent through the command, which a script replaces here."""

from pathlib import Path

import pytest

import tierckpt
from tierckpt.runtime import control


@pytest.fixture
def command(tmp_path, monkeypatch):
    """Makes the command run this script."""
    def make(script):
        path = tmp_path / "tierckpt"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    monkeypatch.setenv("TIERCKPT_BIN_DIR", str(tmp_path))
    return make


def test_answer_has_the_configuration_and_the_words(command):
    command('echo "{\\"ok\\": true, \\"config\\": $2, \\"words\\": \\"$1 $3 $4 $5\\"}"')
    answer = control.ask({"job": "x"}, {"node": "a"}, "drain", "--wait")
    assert answer["config"] == {"job": "x", "node": "a"} and answer["words"] == "--config-json --json drain --wait"


def test_file_is_read_by_the_command(command):
    command('echo "{\\"ok\\": true, \\"words\\": \\"$1 $2 $3 $4\\"}"')
    assert control.ask(Path("job.json"), None, "status")["words"] == "--config job.json --config-json {}"


def test_no_agent_is_no_answer(command):
    command("""echo '{"ok": false, "error": "no agent answers"}'; exit 1""")
    assert control.ask(None, None, "status") is None


@pytest.mark.parametrize("script, why", [("echo not JSON; exit 1", "exit code 1"),
                                         ("echo cannot start >&2; exit 1", "cannot start")])
def test_command_that_does_not_work_is_an_error(command, script, why):
    command(script)
    with pytest.raises(tierckpt.IoError, match=f"no answer to `status`: {why}"):
        control.ask(None, None, "status")


def test_agent_that_hangs_is_an_error(command, monkeypatch):
    monkeypatch.setattr(control, "_ANSWER_S", 0.1)
    command("exec sleep 60")
    with pytest.raises(tierckpt.TimedOutError, match="has not answered .*status"):
        control.ask(None, None, "status")


def test_missing_command_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("TIERCKPT_BIN_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(tierckpt.UnsupportedError, match="neither in .TIERCKPT_BIN_DIR nor"):
        control.ask(None, None, "status")


def test_version_is_term_and_step():
    assert control.version_of({"committed": {"term": 2, "step": 40}}, "committed") == (2, 40)
    assert control.version_of({}, "committed") == control.version_of(None, "committed") == (0, 0)
