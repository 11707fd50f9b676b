"""Grades: every point is explained, unknown costs nothing, a band does not churn."""

from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.telemetry.grades import (
    BANDS,
    CLEARLY,
    DWELL_S,
    Grade,
    Score,
    Signals,
    band_of,
    grade,
    judge,
)

EDGES = [lowest for _, lowest in BANDS if lowest]
counts = st.integers(0, 10**6)
maybe = st.none() | st.floats(0, 1e5)
signals = st.builds(
    Signals,
    availability=st.floats(0, 1),
    observed_s=st.floats(0, 3600),
    reconnects=counts,
    crashes=counts,
    out_of_memory=counts,
    errors=counts,
    round_trip_ms=maybe,
    temperature_c=maybe,
    slowdown=maybe,
)


def test_nobody_is_graded_before_it_is_known_how_available_they_are():
    assert judge(Signals(availability=None, observed_s=1.0, crashes=5)) is None


def test_a_machine_of_which_nothing_bad_is_known_has_all_points():
    assert judge(Signals(availability=1.0, observed_s=600.0)) == Score(100.0)


@given(signals)
def test_the_reasons_explain_every_point_that_is_missing(told: Signals):
    score = judge(told)

    assert score is not None
    assert 0 <= score.score <= 100
    assert abs(max(0.0, 100 - sum(reason.points for reason in score.reasons)) - score.score) < 0.5
    assert [reason.points for reason in score.reasons] == sorted((r.points for r in score.reasons), reverse=True)
    assert all(reason.words and reason.points > 0 for reason in score.reasons)


def test_the_words_of_a_reason_have_its_numbers():
    score = judge(Signals(0.97, 3000.0, reconnects=3, crashes=1, round_trip_ms=300.0, temperature_c=91.0, slowdown=2.0))

    assert {reason.signal: reason.words for reason in score.reasons} == {
        "availability": "3.0 of 100 heartbeats did not come",
        "reconnects": "its link broke 3 times in 50 min",
        "crashes": "a stage crashed once in 50 min",
        "round_trip": "300 ms to the leader and back",
        "temperature": "91 degrees Celsius",
        "slowdown": "a token takes 2.0 times as long as usual",
    }


def test_the_first_grade_is_the_band_of_the_score():
    assert [grade(Score(score), None, 5.0).band for score in (100, 90, 89.9, 60, 40, 39.9, 0)] == list("AABCDFF")


@given(st.sampled_from(EDGES), st.floats(-CLEARLY + 0.01, CLEARLY - 0.01), st.booleans())
def test_a_score_that_wavers_about_an_edge_changes_no_band(edge: float, off: float, above: bool):
    before = Grade(band_of(edge if above else edge - 0.01), 0.0, Score(edge))

    assert grade(Score(edge + off), before, 10 * DWELL_S).band == before.band


@given(st.floats(0, 100), st.floats(0, 100), st.floats(0, DWELL_S - 0.001))
def test_no_band_changes_before_it_has_lasted(first: float, second: float, later_s: float):
    before = grade(Score(first), None, 50.0)
    after = grade(Score(second), before, 50.0 + later_s)

    assert (after.band, after.since_s, after.score) == (before.band, 50.0, Score(second))


@given(st.floats(0, 100), st.floats(0, 100))
def test_a_band_follows_a_score_that_is_clearly_elsewhere(first: float, second: float):
    before = grade(Score(first), None, 0.0)
    after = grade(Score(second), before, DWELL_S)
    clear = band_of(second - CLEARLY) == band_of(second + CLEARLY)

    assert not clear or after.band == band_of(second)
    assert after.since_s == (DWELL_S if after.band != before.band else 0.0)
