"""What a benchmark's samples come to."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from swarm_cli.bench.figures import figures_of, percentile, spread_of, stage_parts
from swarm_cli.bench.sample import CUT, Sample
from swarm_cli.bench.words import WORDS, prompt_of


def reply(sent_s: float, *text_s: float, tokens: int | None = None, **changes) -> Sample:
    """A whole reply: events at these times after it was sent."""
    came_s = [sent_s + at_s for at_s in text_s]
    count = len(came_s) if tokens is None else tokens
    sample = Sample(sent_s, came_s, came_s[-1] if came_s else sent_s, prompt_tokens=100, completion_tokens=count)
    for name, value in changes.items():
        setattr(sample, name, value)
    return sample


def test_the_first_token_is_counted_from_asking_and_gaps_between_events():
    figures = figures_of([reply(10.0, 0.5, 0.6, 0.8), reply(11.0, 0.1, 0.2, 0.3)])

    assert (figures.first_token.p50, figures.first_token.most) == pytest.approx((100, 500))
    assert (figures.between.p50, figures.between.most) == pytest.approx((100, 200))
    assert figures.longest_gap_ms == pytest.approx(200)


def test_the_rate_of_all_counts_from_the_first_request_to_the_last_end():
    """Two replies of 10 tokens within 2 s, whoever waited for whom."""
    figures = figures_of([reply(0.0, 0.5, 1.0, tokens=10), reply(0.5, 1.0, 1.5, tokens=10)])

    assert figures.duration_s == pytest.approx(2.0)
    assert figures.tokens_per_s == pytest.approx(10.0)
    assert figures.prompt_tokens_per_s == pytest.approx(100.0)


def test_a_streams_rate_leaves_the_first_token_out():
    """11 tokens, of which 10 came in the second after the first."""
    assert figures_of([reply(0.0, 5.0, 5.5, 6.0, tokens=11)]).stream_tokens_per_s == pytest.approx(10.0)


def test_a_reply_that_was_cut_counts_its_events_and_is_no_failure():
    cut = reply(0.0, 0.5, 1.0, failure=CUT, completion_tokens=0, prompt_tokens=0)
    figures = figures_of([cut, reply(0.0, 0.5, 1.0)])

    assert (figures.requests, figures.whole, figures.cut, figures.failures) == (2, 1, 1, {})
    assert figures.new_tokens == 4
    assert figures.prompt_tokens_mean == 100


def test_failures_are_counted_by_their_word_most_often_first():
    failed = [reply(0.0, failure=word) for word in ("overloaded", "timeout", "overloaded")]
    figures = figures_of([*failed, reply(0.0, 1.0)])

    assert list(figures.failures.items()) == [("overloaded", 2), ("timeout", 1)]
    assert figures.whole == 1


def test_the_servers_split_is_the_mean_over_replies_that_tell_it():
    told = [
        reply(0.0, 1.0, timing={"queue_ms": queue_ms, "stage0_ms": 4.0, "stage1_ms": 6.0, "route": route})
        for queue_ms, route in ((1.0, "direct"), (3.0, "relay"))
    ]
    figures = figures_of([*told, reply(0.0, 1.0)])

    assert figures.server["queue_ms"] == 2.0
    assert stage_parts(figures.server) == [4.0, 6.0]
    assert figures.routes == {"direct": 1, "relay": 1}


def test_nothing_at_all_comes_to_nothing():
    figures = figures_of([])

    assert (figures.first_token, figures.between, figures.longest_gap_ms, figures.stream_tokens_per_s) == (None,) * 4
    assert (figures.tokens_per_s, figures.duration_s) == (0.0, 0.0)


def test_a_reply_of_one_event_has_no_gap_and_no_rate():
    figures = figures_of([reply(0.0, 1.0)])

    assert (figures.between, figures.stream_tokens_per_s) == (None, None)


def test_percentiles_are_measured_values():
    assert spread_of(range(1, 101)) == spread_of(reversed(range(1, 101)))
    spread = spread_of(range(1, 101))

    assert (spread.p50, spread.p95, spread.p99, spread.most) == (50, 95, 99, 100)


@given(st.lists(st.floats(0, 1e6), min_size=1), st.sampled_from([0.5, 0.95, 0.99]))
def test_at_least_the_share_lies_at_or_below_a_percentile_and_less_below_it(values, share):
    found = percentile(sorted(values), share)

    assert sum(value <= found for value in values) >= math.ceil(len(values) * share - 1e-9)
    assert sum(value < found for value in values) < len(values) * share + 1e-9


def test_prompts_of_different_turns_differ_from_the_first_word_on():
    assert len({prompt_of(50, turn).split()[0] for turn in range(8)}) == 8
    assert len(prompt_of(200, 3).split()) == 200
    assert set(prompt_of(200, 3).split()) <= set(WORDS)
