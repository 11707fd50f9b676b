"""The last 15 minutes of a model: what is counted, what falls out, and how exact it is."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_leader.domain.histogram import ERROR, LEAST_MS, MOST_MS, Histogram, spread_of
from swarm_leader.domain.performance import BUCKET_S, WINDOW_S, Performance, Split

SPLIT = Split(
    queue_ms=10.0,
    prefill_ms=100.0,
    detokenize_ms=1.0,
    stage_ms=(8.0, 6.0),
    wait_ms=2.0,
    link_ms=3.0,
    sample_ms=0.5,
    bytes_per_token=4096.0,
    batch_mean=1.5,
)
START_S = 73_912.5


def exact_ms(durations_ms: list[float], share: float) -> float:
    """The least duration that `share` of them do not exceed."""
    return sorted(durations_ms)[math.ceil(share * len(durations_ms)) - 1]


@given(
    st.lists(st.lists(st.floats(LEAST_MS, MOST_MS), max_size=60), min_size=1, max_size=4).filter(
        lambda parts: any(parts)
    )
)
def test_percentiles_are_within_the_stated_error_of_exact_ones(parts):
    """Also when the durations lie in several histograms."""
    histograms = []
    for part in parts:
        histograms.append(Histogram())
        for duration_ms in part:
            histograms[-1].add(duration_ms)
    durations_ms = [duration_ms for part in parts for duration_ms in part]

    spread = spread_of(histograms)

    assert spread is not None
    for found_ms, share in ((spread.p50_ms, 0.5), (spread.p95_ms, 0.95), (spread.p99_ms, 0.99)):
        assert found_ms == pytest.approx(exact_ms(durations_ms, share), rel=ERROR + 1e-6)


def test_what_is_shorter_or_longer_than_any_bucket_still_counts():
    histogram = Histogram()
    for duration_ms in (0.0, -1.0, 1e12):
        histogram.add(duration_ms)

    assert sum(histogram.counts) == 3


def test_no_durations_have_no_spread():
    assert spread_of([Histogram()]) is None


def test_a_reply_is_counted_with_its_tokens_and_its_times():
    window = Performance(START_S)
    window.start(START_S)
    window.first_token(START_S + 0.5, 500.0)
    window.tokens(START_S + 0.5, 1)
    for token in range(1, 5):
        window.gap(START_S + 0.5 + token / 10, 100.0, 1)
        window.tokens(START_S + 0.5 + token / 10, 1)
    window.complete(START_S + 1.0, prompt_tokens=12, generated_tokens=5, split=SPLIT)
    window.stop(START_S + 1.0)

    figures = window.figures(START_S + 10.0)

    assert (figures.completed, figures.failed, figures.too_long, figures.cancelled) == (1, 0, 0, 0)
    assert (figures.prompt_tokens, figures.generated_tokens) == (12, 5)
    assert figures.tokens_per_s == pytest.approx(5.0)  # five tokens in the one second a reply ran
    assert figures.first_token.p50_ms == pytest.approx(500, rel=ERROR)
    assert figures.inter_token.p99_ms == pytest.approx(100, rel=ERROR)
    assert figures.window_s == pytest.approx(10.0)
    assert figures.split == SPLIT


def test_too_long_turned_away_cancelled_and_failed_are_told_apart():
    window = Performance(START_S)
    window.refuse_too_long(START_S)
    window.cancel(START_S)
    window.cancel(START_S)
    for _ in range(3):
        window.fail(START_S)
    for _ in range(4):
        window.turn_away(START_S)

    figures = window.figures(START_S)

    assert (figures.too_long, figures.cancelled, figures.failed, figures.turned_away) == (1, 2, 3, 4)
    assert figures.completed == 0
    assert (figures.first_token, figures.inter_token, figures.split, figures.tokens_per_s) == (None, None, None, 0.0)


def test_means_per_token_weigh_a_long_reply_more():
    window = Performance(START_S)
    slow = replace(SPLIT, stage_ms=(20.0, 20.0), queue_ms=30.0)
    window.complete(START_S, 1, 301, SPLIT)
    window.complete(START_S, 1, 101, slow)

    split = window.figures(START_S).split

    assert split.stage_ms == (pytest.approx((300 * 8 + 100 * 20) / 400), pytest.approx((300 * 6 + 100 * 20) / 400))
    assert split.queue_ms == pytest.approx(20.0)


def test_a_ring_of_another_length_begins_a_new_split():
    window = Performance(START_S)
    window.complete(START_S, 1, 11, SPLIT)
    window.complete(START_S, 1, 11, replace(SPLIT, stage_ms=(5.0,)))

    assert window.figures(START_S).split.stage_ms == (pytest.approx(5.0),)


def test_a_reply_of_one_token_has_no_decode_to_average():
    window = Performance(START_S)
    window.complete(START_S, 1, 1, replace(SPLIT, stage_ms=()))

    split = window.figures(START_S).split

    assert (split.prefill_ms, split.stage_ms, split.link_ms) == (100.0, (), 0.0)


def test_a_reply_of_one_token_leaves_the_means_of_others_as_they_are():
    """It went round the ring for its prompt only, so its stages say nothing of a decoded token."""
    window = Performance(START_S)
    window.complete(START_S, 1, 11, SPLIT)
    window.complete(START_S, 1, 1, replace(SPLIT, stage_ms=(), prefill_ms=200.0))

    split = window.figures(START_S).split

    assert split.stage_ms == (pytest.approx(8.0), pytest.approx(6.0))
    assert split.prefill_ms == pytest.approx(150.0)


def test_what_is_older_than_the_window_falls_out():
    window = Performance(START_S)
    window.fail(START_S)

    assert window.figures(START_S + WINDOW_S - BUCKET_S - 1).failed == 1
    assert window.figures(START_S + WINDOW_S).failed == 0


def test_a_reply_that_runs_for_days_fills_the_window_and_no_more():
    window = Performance(START_S)
    window.start(START_S)
    late_s = START_S + 10 * 24 * 3600.0
    window.tokens(late_s, 90)

    figures = window.figures(late_s)

    assert WINDOW_S - BUCKET_S <= figures.window_s <= WINDOW_S
    assert figures.tokens_per_s == pytest.approx(90 / figures.window_s)


@given(st.lists(st.tuples(st.floats(0.0, 400.0), st.sampled_from(["start", "stop", "token"])), max_size=60))
def test_speed_is_tokens_over_the_time_in_which_a_reply_ran(steps):
    """Against a plain reckoning, while nothing has fallen out of the window yet."""
    window, now_s, running, busy_s, tokens = Performance(START_S), START_S, 0, 0.0, 0
    for wait_s, what in steps:
        if now_s + wait_s - START_S >= WINDOW_S - BUCKET_S:
            break
        before_s, now_s = now_s, now_s + wait_s
        busy_s += now_s - before_s if running else 0.0
        if what == "start":
            window.start(now_s)
            running += 1
        elif running and what == "stop":
            window.stop(now_s)
            running -= 1
        elif running:
            window.tokens(now_s, 2)
            tokens += 2

    figures = window.figures(now_s)

    assert figures.tokens_per_s == pytest.approx(tokens / busy_s if busy_s else 0.0)
    assert figures.window_s == pytest.approx(now_s - START_S)
