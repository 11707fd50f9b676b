"""Lines on their way to the leader: whole, without secrets, no more than fit, and what they count."""

from swarm_core.clock import ManualClock
from swarm_fellow.host.log_tap import LINE_CHARS_MAX, LINES_MAX, ONE_CAUSE_S, UNFINISHED_BYTES_MAX, LogTap


def texts(tap: LogTap) -> list[str]:
    """What waits in it."""
    return [line.text for line in tap.take(10 * LINES_MAX)[0]]


def test_a_stages_line_counts_once_its_end_has_come():
    tap = LogTap(ManualClock())
    tap.add_output("tiny-stage-0", b"first\nsec")
    tap.add_output("tiny-stage-1", b"of another\n")
    before = texts(tap)
    tap.add_output("tiny-stage-0", b"ond\n\n")

    assert before == ["first", "of another"]
    assert texts(tap) == ["second"]


def test_lines_say_whose_they_are_and_when_they_came():
    clock = ManualClock(unix_s=1000.5)
    tap = LogTap(clock)
    tap.add("registered with the leader")
    tap.add_output("tiny-stage-0", b"loaded\n")

    lines, dropped = tap.take(10)
    assert [(line.at_s, line.source, line.text) for line in lines] == [
        (1000.5, "fellow", "registered with the leader"),
        (1000.5, "tiny-stage-0", "loaded"),
    ]
    assert dropped == 0


def test_no_secret_and_no_colour_gets_through_whoever_wrote_it():
    tap = LogTap(ManualClock())
    tap.add_output("tiny-stage-0", b"\x1b[31mTraceback: key=sk-swarm-abcdefghijklmnop\x1b[0m swarm-join-abcdef.123\n")

    assert texts(tap) == ["Traceback: key=sk-swarm-*** swarm-join-***"]


def test_when_nobody_takes_them_the_oldest_fall_out_and_are_counted():
    tap = LogTap(ManualClock())
    for number in range(LINES_MAX + 7):
        tap.add(f"line {number}")

    lines, dropped = tap.take(1)
    assert (lines[0].text, dropped) == ("line 7", 7)
    assert tap.take(1)[1] == 0


def test_a_line_without_end_takes_no_room_without_end():
    tap = LogTap(ManualClock())
    for _ in range(100):
        tap.add_output("tiny-stage-0", b"x" * UNFINISHED_BYTES_MAX)

    assert all(len(text) == LINE_CHARS_MAX for text in texts(tap))
    assert sum(len(rest) for rest in tap._unfinished.values()) <= UNFINISHED_BYTES_MAX


def test_errors_of_the_fellow_and_memory_that_ran_out_are_counted_once_a_cause():
    clock = ManualClock()
    tap = LogTap(clock)
    tap.add("2026-11-30T20:00:00Z [error    ] stage crashed how='exited with code 1'")
    tap.add("2026-11-30T20:00:00Z [info     ] no [error] here either")
    tap.add_output(
        "tiny-stage-0", b"[error] of a stage\ntorch.OutOfMemoryError: CUDA out of memory\nCUDA out of memory\n"
    )
    clock.advance(ONE_CAUSE_S)
    tap.add_output("tiny-stage-0", b"RuntimeError: out of memory\n")

    assert (tap.errors, tap.out_of_memory) == (1, 2)
