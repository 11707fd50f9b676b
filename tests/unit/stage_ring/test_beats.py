"""When a neighbour's silence is a fault. Times are this test's own."""

from silentswarm.ring.v1 import ring_pb2
from swarm_stage.ring.beats import Hearing, Pace, RoundTrips

PACE = Pace()
START_S = 5_000.25


def beat(interval_ms: int = 1000, sequence: int = 1) -> ring_pb2.Beat:
    return ring_pb2.Beat(sequence=sequence, interval_ms=interval_ms)


def judged(hearing: Hearing, from_s: float, to_s: float) -> float | None:
    """Asked every check_s; when it was called silent first, in seconds from from_s."""
    for step in range(1, int((to_s - from_s) / PACE.check_s) + 1):
        now_s = from_s + step * PACE.check_s
        if hearing.silent_too_long_s(now_s) is not None:
            return now_s - from_s
    return None


def test_a_stage_that_promised_nothing_may_be_silent_for_ever():
    """One of an earlier version sends no beats."""
    hearing = Hearing(PACE)
    hearing.hear(START_S)

    assert judged(hearing, START_S, START_S + 1000) is None


def test_a_promise_missed_three_times_over_is_a_fault_and_no_earlier():
    hearing = Hearing(PACE)
    hearing.hear(START_S, beat())

    assert judged(hearing, START_S, START_S + 10) == 3.5


def test_anything_whole_keeps_the_promise():
    hearing = Hearing(PACE)
    hearing.hear(START_S, beat())
    for second in range(1, 100):
        assert judged(hearing, START_S + second - 1, START_S + second) is None
        hearing.hear(START_S + second)


def test_a_batch_on_a_slow_line_is_waited_for_as_long_as_was_promised_and_the_next_as_usual():
    """4 MiB take 8 s on a line of half a MiB a second, and 24 s on one three times as slow."""
    hearing = Hearing(PACE)
    hearing.hear(START_S, beat())
    hearing.hear(START_S, beat(round(PACE.promise_s(4 * 2**20) * 1000)))
    while_it_comes = judged(hearing, START_S, START_S + 23)
    hearing.hear(START_S + 23)

    assert while_it_comes is None
    assert judged(hearing, START_S + 23, START_S + 40) == 3.5


def test_no_promise_is_longer_than_a_minute_whatever_a_neighbour_says():
    hearing = Hearing(PACE)
    hearing.hear(START_S, beat(2**32 - 1))

    assert judged(hearing, START_S, START_S + 1000) == 180.5


def test_what_this_stage_does_not_read_is_not_the_neighbours_silence():
    """Its engine is busy and its inbox full, so nothing behind it is read."""
    hearing = Hearing(PACE)
    hearing.hear(START_S, beat())
    hearing.stop_listening()
    while_busy = judged(hearing, START_S, START_S + 60)
    hearing.listen_again(START_S + 60)

    assert while_busy is None
    assert judged(hearing, START_S + 60, START_S + 70) == 3.5


def test_a_stage_that_stood_still_itself_gives_its_neighbour_one_more_promise():
    """A laptop that wakes up must not blame whoever spoke while it slept: what they said is still to be read."""
    hearing = Hearing(PACE)
    hearing.hear(START_S, beat())
    judged(hearing, START_S, START_S + 1)
    woke_s = START_S + 600
    at_once = hearing.silent_too_long_s(woke_s)

    assert at_once is None
    assert judged(hearing, woke_s, woke_s + 10) == 1.0


def test_a_stage_that_stood_still_and_then_hears_its_neighbour_blames_nobody():
    hearing = Hearing(PACE)
    hearing.hear(START_S, beat())
    judged(hearing, START_S, START_S + 1)
    woke_s = START_S + 600
    hearing.silent_too_long_s(woke_s)
    hearing.hear(woke_s + 0.2, beat(sequence=2))

    assert judged(hearing, woke_s, woke_s + 3) is None


def test_round_trips_are_of_answered_beats_and_an_answer_said_again_adds_none():
    trips = RoundTrips()
    for sequence, taken_s in enumerate((0.010, 0.030, 0.020)):
        trips.sent(sequence, START_S)
        trips.answered(sequence, START_S + taken_s)
        trips.answered(sequence, START_S + 5)
    trips.answered(99, START_S)

    assert RoundTrips().median_ms is None
    assert trips.median_ms is not None and abs(trips.median_ms - 20) < 0.01
