"""What a machine's window says: availability as it is defined, counters over restarts, and never more memory."""

from math import isnan

from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.telemetry.window import (
    LATELY,
    SAMPLES_MAX,
    STEPS_MIN,
    WINDOW_S,
    Sample,
    Window,
    median,
    percentile,
)

BEGAN_S = 731.25
BEAT_S = 3.0


def window_with(beats: list[float], interval_s: float = BEAT_S) -> Window:
    """A machine first seen at BEGAN_S, with heartbeats so many seconds later."""
    window = Window(BEGAN_S, interval_s)
    for later_s in beats:
        window.note_heartbeat(BEGAN_S + later_s, Sample())
    return window


def test_availability_is_unknown_until_two_heartbeats_were_due():
    window = window_with([0.1, 3.1])

    assert window.availability(BEGAN_S + 2 * BEAT_S - 0.01) is None
    assert window.availability(BEGAN_S + 2 * BEAT_S) == 1.0


def test_an_outage_is_not_hidden_by_coming_back():
    """60 s of heartbeats, 60 s of nothing, 60 s of heartbeats: two thirds."""
    beats = [3.0 * n for n in range(1, 21)] + [3.0 * n for n in range(41, 61)]
    window = window_with(beats)
    window.reconnects.add(BEGAN_S + 121)

    assert window.availability(BEGAN_S + 180) == 40 / 60


def test_a_machine_that_says_nothing_becomes_ever_less_available():
    window = window_with([1.0])

    assert window.availability(BEGAN_S + 30) == 0.1
    assert window.availability(BEGAN_S + 300) == 0.01


@given(st.lists(st.floats(0, 2 * WINDOW_S), max_size=200), st.floats(0, 3 * WINDOW_S), st.floats(0.2, 30))
def test_availability_is_what_came_of_what_was_due(later_s: list[float], now_later_s: float, interval_s: float):
    beats = sorted(one for one in later_s if one <= now_later_s)
    window = window_with(beats, interval_s)
    now_s = BEGAN_S + now_later_s
    availability = window.availability(now_s)
    span_s = min(now_later_s, WINDOW_S, SAMPLES_MAX * interval_s)
    due = int(span_s / interval_s + 1e-6)

    if due < 2:
        assert availability is None
    else:
        edge_s = now_s - window.observed_s(now_s)
        came = sum(BEGAN_S + one >= edge_s for one in beats[-SAMPLES_MAX:])
        assert availability == min(1.0, came / due)
        assert 0 <= availability <= 1


@given(st.integers(0, 3 * SAMPLES_MAX))
def test_no_number_of_heartbeats_takes_more_room(count: int):
    window = window_with([])
    for number in range(count):
        window.note_heartbeat(BEGAN_S + number, Sample(busy_share=0.5))
        window.note_step("p/0", 1.0)
        window.reconnects.add(BEGAN_S + number)

    assert len(window.figures("busy_share", BEGAN_S + count)) <= SAMPLES_MAX
    assert sum(len(column) for column in window._columns.values()) == 6 * SAMPLES_MAX
    assert window.reconnects.count(BEGAN_S + count) <= 256


def test_what_is_not_said_is_unknown_and_no_zero():
    window = window_with([1.0])
    window.note_heartbeat(BEGAN_S + 2, Sample(leader_round_trip_ms=12.0))

    assert [isnan(figure) for figure in window.figures("leader_round_trip_ms", BEGAN_S + 3)] == [True, False]
    assert median(window.figures("leader_round_trip_ms", BEGAN_S + 3)) == 12.0
    assert median(window.figures("temperature_c", BEGAN_S + 3)) is None
    assert not window.counts("errors")


def test_what_is_older_than_the_window_does_not_count():
    window = Window(BEGAN_S, 30.0)
    window.note_heartbeat(BEGAN_S + 1, Sample(leader_round_trip_ms=900.0))
    window.note_heartbeat(BEGAN_S + WINDOW_S, Sample(leader_round_trip_ms=10.0))
    window.reconnects.add(BEGAN_S + 1)

    assert median(window.figures("leader_round_trip_ms", BEGAN_S + WINDOW_S + 2)) == 10.0
    assert window.reconnects.count(BEGAN_S + WINDOW_S + 2) == 0


def test_a_counter_counts_what_it_grew_by_also_over_a_restart_of_the_fellow():
    window = window_with([])
    for later_s, count in enumerate((7, 7, 9, 1, 1)):
        window.note_heartbeat(BEGAN_S + later_s, Sample(errors=count))

    assert window.errors.count(BEGAN_S + 10) == 2 + 1


def test_a_crash_counts_once_whoever_tells_it():
    tells, silent = window_with([]), window_with([])
    tells.note_heartbeat(BEGAN_S, Sample(stage_crashes=0))
    tells.note_crash(BEGAN_S + 1)
    tells.note_heartbeat(BEGAN_S + 2, Sample(stage_crashes=1))
    silent.note_heartbeat(BEGAN_S, Sample())
    silent.note_crash(BEGAN_S + 1)

    assert tells.crashes.count(BEGAN_S + 3) == silent.crashes.count(BEGAN_S + 3) == 1


def test_a_ping_stands_where_the_heartbeat_said_no_round_trip_and_nowhere_else():
    window = window_with([1.0])
    window.note_round_trip(5.0)
    window.note_heartbeat(BEGAN_S + 2, Sample(leader_round_trip_ms=80.0))
    window.note_round_trip(5.0)

    assert list(window.figures("leader_round_trip_ms", BEGAN_S + 3)) == [5.0, 80.0]


def test_slower_than_usual_is_known_once_something_is_usual_and_of_one_stage_only():
    window = window_with([])
    for _ in range(STEPS_MIN - 1):
        window.note_step("p/0", 10.0)
    too_few = window.slowdown()
    for _ in range(20):
        window.note_step("p/0", 10.0)
    for _ in range(LATELY):
        window.note_step("p/0", 25.0)
    slower = window.slowdown()
    window.note_step("q/0", 99.0)

    assert (too_few, slower, window.slowdown()) == (None, 2.5, None)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_one_of_the_figures_with_that_share_at_or_below_it(figures: list[float], share: float):
    found = percentile([*figures, None, float("nan")], share)

    assert found in figures
    assert sum(figure <= found for figure in figures) >= share * len(figures) - 1e-9
    assert sum(figure < found for figure in figures) < share * len(figures) + 1e-9
