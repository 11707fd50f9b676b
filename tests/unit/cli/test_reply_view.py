"""Where a reply that waits stands, and where its time went, as people read it."""

import io

import pytest
from rich.console import Console
from silentswarm.core.v1 import generation_pb2
from swarm_cli.progress import Notice
from swarm_cli.reply_view import Aside, Took, ordinal, standing_text, timing_view
from swarm_cli.terminal import console_on

Queued = generation_pb2.GenerationEvent.Queued
TIMING = generation_pb2.Timing(
    queue_ms=30.0,
    tokenize_ms=10.0,
    prefill_ms=200.0,
    prefill_stage_ms=[90.0, 80.0],
    decode_ms=400.0,
    stage_ms=[15.0, 12.0],
    sample_ms=1.0,
    wait_ms=8.0,
    link_ms=4.0,
    detokenize_ms=20.0,
    total_ms=640.0,
    batch_mean=3.0,
    route="relay",
)
DONE = generation_pb2.GenerationEvent.Done(prompt_tokens=1500, completion_tokens=11, timing=TIMING)


class Terminal(io.StringIO):
    """A stream that says it is a terminal, and keeps what was written."""

    def isatty(self) -> bool:
        return True


class Clock:
    """Seconds that a test sets."""

    now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("number", "text"), [(2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (12, "12th"), (21, "21st"), (113, "113th")]
)
def test_places_in_line_are_counted_as_people_do(number: int, text: str):
    assert ordinal(number) == text


def test_whoever_waits_learns_the_place_and_the_reason():
    third = Queued(position=3, reason="8 of 8 places are taken")

    assert standing_text(third) == "waiting: 3rd in line; 8 of 8 places are taken"
    assert standing_text(Queued(position=1)) == "waiting: next in line"


def test_a_reason_stays_one_line_and_moves_no_cursor():
    assert standing_text(Queued(position=2, reason="a\n\x1b[2Jb")) == "waiting: 2nd in line; a  [2Jb"


def seen(done: generation_pb2.GenerationEvent.Done, took: Took) -> list[str]:
    """The rows, spaces as one."""
    stream = io.StringIO()
    console_on(stream).print(timing_view(done, took))
    return [" ".join(line.split()) for line in stream.getvalue().splitlines()]


def test_the_parts_of_a_reply_add_up_to_the_time_it_took():
    rows = seen(DONE, Took(started_ms=85.0, total_ms=700.0))

    assert rows == [
        "WHERE THE TIME WENT EACH IN ALL SHARE",
        "the leader's queue, and the way to stage 0 55.0 ms 8%",
        "template and tokeniser 10.0 ms 1%",
        "waiting for a start at stage 0 20.0 ms 3%",
        "prompt, to the first token 200 ms 29%",
        "tokens after it: stage 0 15.0 ms 150 ms 21%",
        "tokens after it: stage 1 12.0 ms 120 ms 17%",
        "tokens after it: sampling 1.0 ms 10.0 ms 1%",
        "tokens after it: waiting for busy stages 8.0 ms 80.0 ms 11%",
        "tokens after it: links (relay) 4.0 ms 40.0 ms 6%",
        "last of the text 10.0 ms 1%",
        "the way back 5.0 ms 1%",
        "in all 700 ms 100%",
        "prompt of 1,500 tokens: stage 0 90.0 ms, stage 1 80.0 ms, at the same time where they can",
        "10 tokens after the first: 25.0 tokens/s, 3.0 replies a step",
    ]
    parts_ms = [float(row.split()[-3]) for row in rows[1:12]]
    assert sum(parts_ms) == 700.0


def test_a_reply_of_one_token_has_no_row_for_the_tokens_after_it():
    one = generation_pb2.GenerationEvent.Done(completion_tokens=1, timing=generation_pb2.Timing(prefill_ms=5.0))

    assert not any("after" in row and "token" in row for row in seen(one, Took(0.5, 6.0)))


def test_on_a_terminal_a_wait_is_one_line_that_replaces_itself_and_leaves_nothing():
    stream, clock = Terminal(), Clock()
    notice = Notice(Console(file=stream, width=30, force_terminal=True, _environ={"TERM": "xterm"}), clock)

    notice.change("waiting: 3rd in line")
    clock.now_s += 1
    notice.draw()
    notice.draw()
    notice.change("waiting: 2nd in line; a reason that is too long")
    notice.clear()

    line = "\r\x1b[2K"
    assert stream.getvalue().split(line)[1:] == [
        "waiting: 3rd in line (0 s)",
        "waiting: 3rd in line (1 s)",
        "waiting: 2nd in line; a reaso",
        "",
    ]


def test_a_wait_in_the_middle_of_a_reply_wipes_away_nothing_of_it_and_counts_from_its_own_beginning():
    stream, clock = Terminal(), Clock()
    notice = Notice(Console(file=stream, width=60, force_terminal=True, _environ={"TERM": "xterm"}), clock)
    notice.begin("computing the prompt", after_s=2.0, every_s=5.0)
    notice.clear()
    stream.write("There was a lighth")
    notice.is_behind_text = True
    clock.now_s += 40

    notice.change("waiting: the ring broke")
    clock.now_s += 1
    notice.draw()
    notice.clear()

    line = "\r\x1b[2K"
    held = f"\nwaiting: the ring broke (0 s){line}waiting: the ring broke (1 s){line}"
    assert stream.getvalue() == f"There was a lighth{held}"


def test_elsewhere_a_wait_is_said_once_a_change():
    stream, clock = io.StringIO(), Clock()
    notice = Notice(console_on(stream), clock)

    for words in ("waiting: 3rd in line", "waiting: 3rd in line", "waiting: next in line"):
        notice.change(words)
        clock.now_s += 60
        notice.draw()
    notice.clear()

    assert stream.getvalue() == "waiting: 3rd in line (0 s)\nwaiting: next in line (120 s)\n"


def test_a_wait_that_is_over_soon_is_not_mentioned_and_a_long_one_shows_that_it_lives():
    stream, clock = io.StringIO(), Clock()
    notice = Notice(console_on(stream), clock)

    notice.begin("waiting for the leader", after_s=2.0, every_s=5.0)
    clock.now_s += 1.9
    notice.draw()
    notice.begin("computing the prompt", after_s=2.0, every_s=5.0)
    for _ in range(9):
        clock.now_s += 1
        notice.draw()

    assert stream.getvalue() == "computing the prompt (2 s)\ncomputing the prompt (7 s)\n"


def test_reasoning_and_calls_are_lines_beside_the_answer():
    written: list[str] = []
    aside = Aside(written.append)
    batch = generation_pb2.GenerationEvent.TokenBatch
    delta = generation_pb2.GenerationEvent.ToolCallDelta
    for told in (
        batch(reasoning="Let me\x1b[2J "),
        batch(reasoning="see.", tool_calls=[delta(index=0, name="get")]),
        batch(tool_calls=[delta(index=0, arguments='{"a"'), delta(index=0, arguments=": 1}")]),
        batch(tool_calls=[delta(index=1, name="put", arguments="{}")]),
    ):
        aside.show(told)
    aside.end()
    aside.end()

    assert "".join(written) == 'Let me [2J see.\nget({"a": 1})\nput({})\n'


def test_an_answer_without_anything_beside_it_is_not_touched():
    written: list[str] = []
    Aside(written.append).end()

    assert written == []
