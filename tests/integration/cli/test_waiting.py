"""A reply that has to wait, as a user of `swarm infer` and `swarm chat` sees it."""

import asyncio
import os
import pty
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field

import pytest
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2, serving_pb2

from tests.integration.cli.scripted_leader import ScriptedLeader, serve

SEEN_S = 20.0
STANDINGS = ((3, "8 of 8 places are taken"), (1, "8 of 8 places are taken"))


@dataclass
class FullLeader(ScriptedLeader):
    """Lets the first request wait, until `has_room`; `left` is set when it went away instead."""

    has_room: threading.Event = field(default_factory=threading.Event)
    left: threading.Event = field(default_factory=threading.Event)

    async def Generate(self, request, context) -> AsyncIterator[inference_pb2.GenerateEvent]:
        try:
            for position, reason in STANDINGS if not self.generations else ():
                queued = generation_pb2.GenerationEvent.Queued(position=position, reason=reason)
                yield inference_pb2.GenerateEvent(request_id="r-1", event=generation_pb2.GenerationEvent(queued=queued))
            while not self.generations and not self.has_room.is_set():
                await asyncio.sleep(0.02)
        except (asyncio.CancelledError, GeneratorExit):
            self.left.set()
            self.generations.append(request)
            raise
        async for event in super().Generate(request, context):
            yield event


@pytest.fixture
def full() -> Iterator[FullLeader]:
    """A ring without a place."""
    with serve(FullLeader()) as leader:
        yield leader


def command(leader: ScriptedLeader, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "swarm_cli", *arguments, "--leader", leader.address]


def read_until(terminal: int, words: bytes, seen: bytes = b"") -> bytes:
    """What a terminal showed up to these words and a little more. Raises AssertionError when they do not come."""
    deadline_s = time.monotonic() + SEEN_S
    while words not in seen:
        left_s = max(0.0, deadline_s - time.monotonic())
        assert select.select([terminal], [], [], left_s)[0], f"{words!r} never came; seen: {seen!r}"
        seen += os.read(terminal, 65536)
    return seen


def test_where_a_reply_stands_is_said_once_a_change_and_stdout_is_the_reply_alone(full: FullLeader):
    full.has_room.set()
    ended = subprocess.run(
        command(full, "infer", "tiny", "Where?", "--timing"), capture_output=True, text=True, timeout=SEEN_S
    )

    assert ended.stdout == "[bold]The capital of France is Paris.\n"
    waits = [line for line in ended.stderr.splitlines() if line.startswith("waiting: ")]
    assert waits == [
        "waiting: 3rd in line; 8 of 8 places are taken (0 s)",
        "waiting: next in line; 8 of 8 places are taken (0 s)",
    ]
    assert "WHERE THE TIME WENT" in ended.stderr and "\x1b" not in ended.stderr


class SlowLeader(ScriptedLeader):
    """Its loads last for ever."""

    async def WatchModel(self, request, context) -> AsyncIterator[serving_pb2.ModelStatus]:
        stage = serving_pb2.StagePlacement(fellow_name="fellow-1", state="loading")
        yield serving_pb2.ModelStatus(state=serving_pb2.PLACEMENT_STATE_LOADING, stages=[stage])
        await asyncio.Event().wait()


def test_ctrl_c_while_a_load_is_waited_for_says_that_it_goes_on():
    with (
        serve(SlowLeader()) as slow,
        subprocess.Popen(command(slow, "model-load", "tiny", "--wait"), stderr=subprocess.PIPE, text=True) as load,
    ):
        try:
            assert "stage 0 on fellow-1 loading" in load.stderr.readline()
            load.send_signal(signal.SIGINT)
            rest = load.stderr.read()
        finally:
            load.kill()  # harmless when it has ended; without it a failure would wait for its deadline

    assert load.returncode == 130
    assert rest == "tiny goes on loading: `swarm status` shows it, `swarm model-unload tiny` ends it\n"


def test_ctrl_c_while_waiting_leaves_the_queue_at_once(full: FullLeader):
    with subprocess.Popen(command(full, "infer", "tiny", "Where?"), stderr=subprocess.PIPE, text=True) as infer:
        try:
            assert infer.stderr.readline().startswith("waiting: 3rd in line")
            infer.send_signal(signal.SIGINT)
            has_left = full.left.wait(timeout=5)
            rest = infer.stderr.read()
        finally:
            infer.kill()  # harmless when it has ended; without it a failure would wait for its deadline

    assert has_left
    assert infer.returncode == 130
    assert "Traceback" not in rest


def test_on_a_terminal_the_line_is_replaced_and_ctrl_c_leads_back_to_the_prompt(full: FullLeader):
    master, slave = pty.openpty()
    # A session of its own whose terminal this is, or Ctrl-C would be a character like any other.
    on_terminal = (
        "import os,sys,fcntl,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", on_terminal, *command(full, "chat", "tiny")],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
        start_new_session=True,
    ) as chat:
        os.close(slave)
        try:
            read_until(master, b"you> ")
            os.write(master, b"Where?\n")
            seen = read_until(master, b"next in line")
            assert b"\r\x1b[2Kwaiting: next in line; 8 of 8 places are taken" in seen
            os.write(master, b"\x03")
            assert full.left.wait(timeout=5)
            seen = read_until(master, b"you> ", seen.partition(b"next in line")[2])
            assert b"\r\x1b[2K[stopped]" in seen
            os.write(master, b"And now?\n")
            seen = read_until(master, b"is Paris.")
            assert b"\x1b[2K" not in seen.partition(b"And now?")[2]
            os.write(master, b"/quit\n")
            assert chat.wait(timeout=SEEN_S) == 0
        finally:
            chat.kill()
            os.close(master)


def test_a_minimum_of_tokens_and_no_end_of_turn_are_passed_on(full: FullLeader):
    full.has_room.set()
    options = ("--min-tokens", "7", "--max-tokens", "9", "--ignore-eos")
    subprocess.run(command(full, "infer", "tiny", "Where?", *options), capture_output=True, timeout=SEEN_S, check=True)

    asked = full.generations[0].generation
    assert (asked.new_tokens_min, asked.new_tokens_max, asked.ignore_eos) == (7, 9, True)


def test_a_minimum_above_the_most_is_wrong_usage_and_names_both_options(full: FullLeader):
    ended = subprocess.run(
        command(full, "infer", "tiny", "Where?", "--min-tokens", "600"), capture_output=True, text=True, timeout=SEEN_S
    )

    assert ended.returncode == 2
    assert "--min-tokens 600 is more than --max-tokens 512" in ended.stderr
