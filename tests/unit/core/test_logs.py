"""What a log line shows of what others sent."""

import json
import subprocess
import sys

import pytest

SAYS = """
import sys

import structlog
from swarm_core.logs import configure_logs

configure_logs("gateway", as_json=sys.argv[1] == "json")
log = structlog.get_logger()
log.info("answered", path=sys.argv[2], name="漢字")
try:
    raise ValueError(sys.argv[2])
except ValueError as error:
    log.error("failed", exc_info=error)
"""
TITLE = "/\x1b]0;owned\x07"  # sets the title of a terminal
CLEAR = "/\x1b[2J\r\x9b2J\u202e"  # clears it; turns the rest of the line round


def said(form: str, text: str) -> str:
    """The log of a process that is sent this text."""
    command = [sys.executable, "-c", SAYS, form, text]
    return subprocess.run(command, stderr=subprocess.PIPE, encoding="utf-8", check=True, timeout=60).stderr


@pytest.mark.parametrize("text", [TITLE, CLEAR, "/\nFAKE line", "/\x7f\x08"])
def test_control_characters_of_others_are_shown_and_never_sent_to_a_terminal(text: str):
    log = said("console", text)

    assert all(letter.isprintable() or letter == "\n" for letter in log)
    assert f"path={text!r}" in log.splitlines()[0]
    assert "name=漢字" in log.splitlines()[0]


@pytest.mark.parametrize("text", [TITLE, CLEAR])
def test_in_json_they_are_the_same_text_again(text: str):
    line = said("json", text).splitlines()[0]

    assert line.isprintable()
    assert json.loads(line)["path"] == text
