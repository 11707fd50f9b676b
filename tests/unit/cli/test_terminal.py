"""Numbers as people read them, and lines a pipe can read."""

import io
import os
import pty
import subprocess
import sys
import time

import pytest
from rich.console import Console
from swarm_cli.progress import LineSteps, share_of
from swarm_cli.terminal import bytes_text, console_on, count_text, table_of
from swarm_cli.up.narrator import Narrator


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "unknown"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1536, "1.5 KiB"),
        (93 * 2**20, "93.0 MiB"),
        (2**41, "2048.0 GiB"),
    ],
)
def test_bytes_are_told_in_binary_units_and_unknown_is_not_zero(count: int | None, text: str):
    assert bytes_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999"), (1500, "1.5k"), (134_515_008, "134.5M"), (7 * 10**9, "7.0B")]
)
def test_counts_are_told_in_thousands(count: int, text: str):
    assert count_text(count) == text


def test_a_row_in_a_pipe_ends_where_its_words_end():
    stream = io.StringIO()
    table = table_of("WHAT", "")
    table.add_row("crash", "x" * 500)
    table.add_row("joined", "")
    console_on(stream).print(table)

    assert [len(line) for line in stream.getvalue().splitlines()] == [4, 508, 6]


@pytest.mark.parametrize(("is_beside_chat", "begin"), [(True, "\n["), (False, "[")])
def test_words_of_the_supervisor_have_a_line_of_their_own_beside_a_chat(capsys, is_beside_chat: bool, begin: str):
    narrator = Narrator(time.monotonic())
    narrator.is_beside_chat = is_beside_chat

    narrator.warn("leader ended by signal 9; started again in 0.25 s")

    assert capsys.readouterr().err.startswith(begin)


def test_a_row_in_a_pipe_is_one_line_however_long():
    stream = io.StringIO()
    table = table_of("A", "B")
    table.add_row("x" * 500, "end")

    console_on(stream).print(table)

    assert stream.getvalue().splitlines()[1].split() == ["x" * 500, "end"]


def test_a_step_is_told_when_it_begins_and_not_again_at_once():
    stream = io.StringIO()
    lines = LineSteps(Console(file=stream, width=200), started_s=0.0)

    for done in range(50):
        lines.show("import", "convert", done, 100)
    lines.show("import", "hash")

    told = [line.partition("] ")[2] for line in stream.getvalue().splitlines()]
    assert told == ["import convert 0 %", "import hash"]


@pytest.mark.parametrize(
    ("done", "total", "text"), [(5, 0, ""), (0, 1, ""), (0, 10, "0 %"), (10, 10, "100 %"), (11, 10, "100 %")]
)
def test_a_share_is_told_of_steps_with_a_total(done: int, total: int, text: str):
    assert share_of(done, total) == text


HOSTILE = "[bold]a\x1b]52;c;b3duZWQ=\x07\x9b2J\r👩\u200d👧\n\tb"


def test_a_reply_cannot_steer_the_terminal_it_is_read_in():
    master, slave = pty.openpty()
    try:
        say = f"from swarm_cli.terminal import write_text; write_text({HOSTILE!r})"
        subprocess.run([sys.executable, "-c", say], stdout=slave, check=True, timeout=60, env={"PYTHONUTF8": "1"})
        shown = os.read(master, 4096).decode()
    finally:
        os.close(master)
        os.close(slave)

    assert shown.replace("\r\n", "\n") == "[bold]a]52;c;b3duZWQ=2J👩\u200d👧\n\tb"


def test_a_reply_in_a_pipe_is_the_very_reply():
    say = f"from swarm_cli.terminal import write_text; write_text({HOSTILE!r})"
    piped = subprocess.run([sys.executable, "-c", say], stdout=subprocess.PIPE, check=True, timeout=60)

    assert piped.stdout.decode() == HOSTILE
