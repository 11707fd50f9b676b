"""How fast a ring goes, in simulated time: full stages, others' tokens beside long prompts, times that add up."""

from statistics import mean, median

import pytest

from tests.unit.stage_engine.timed_ring import StageCost, TimedRing

LONG = 2000
CHEAP_PIECES = StageCost(piece_fixed_ms=5, piece_token_ms=0.2)
DEAR_PIECES = StageCost(
    step_fixed_ms=30, step_row_ms=2, piece_fixed_ms=30, piece_token_ms=4
)  # the shortest takes 94 ms
UNEVEN = (CHEAP_PIECES, StageCost(step_fixed_ms=40, piece_fixed_ms=20, piece_token_ms=1), CHEAP_PIECES)


def prompt(tokens: int, first: int = 1) -> list[int]:
    return [(first + index) % 900 for index in range(tokens)]


@pytest.mark.parametrize(
    ("costs", "link_ms", "running"),
    [
        ([CHEAP_PIECES], 0, 1),
        ([CHEAP_PIECES] * 2, 0, 8),
        ([CHEAP_PIECES] * 4, 20, 1),
        ([DEAR_PIECES], 0, 1),
        ([DEAR_PIECES] * 2, 0, 8),
        ([DEAR_PIECES] * 2, 20, 1),
        (UNEVEN, 20, 8),
    ],
)
def test_a_long_prompt_does_not_double_the_time_between_anothers_tokens(costs, link_ms, running):
    def gaps_of(has_prompt: bool) -> list[float]:
        ring = TimedRing(len(costs), costs, link_ms, chunk=256, in_flight=10)
        replies = [ring.submit(f"a{number}", prompt(20), 300, caller="ann") for number in range(running)]
        beside = []
        if has_prompt:
            ring.at(3.0, lambda: beside.append(ring.submit("b", prompt(LONG), 1, caller="bob")))
        ring.run()
        until_s = beside[0].token_s[0] if has_prompt else float("inf")
        return gaps_between(replies, ring.started_s + 3.0, until_s)

    alone, beside_prompt = gaps_of(False), gaps_of(True)

    assert len(beside_prompt) >= 4 * running
    assert median(beside_prompt) <= 2 * median(alone)
    assert mean(beside_prompt) <= 2 * median(alone)


@pytest.mark.parametrize(("running", "most_s"), [(1, 9.8), (8, 9.0)])
def test_a_long_prompt_goes_in_pieces_as_large_as_a_gap_of_four_medians_has_room_for(running, most_s):
    """SmolLM2 on one thread: a token costs 5.6 ms in pieces of 16, 4.6 in those of 32, and 4.1 in those of 80."""
    cost = StageCost(step_fixed_ms=50, step_row_ms=10.5, piece_fixed_ms=30, piece_token_ms=3.7)
    ring = TimedRing(1, cost, chunk=256, in_flight=9)
    replies = [ring.submit(f"a{number}", prompt(20), 250, caller="ann") for number in range(running)]
    beside = []
    ring.at(3.0, lambda: beside.append(ring.submit("b", prompt(900), 1, caller="bob")))
    ring.run()
    gaps = gaps_between(replies, ring.started_s + 3.0, beside[0].token_s[0])
    step_s = (50 + 10.5 * running) / 1e3

    assert beside[0].token_s[0] - ring.started_s - 3.0 < most_s
    assert median(gaps) == pytest.approx(step_s, rel=0.01)
    assert mean(gaps) <= 2 * step_s
    assert max(gaps) <= 4 * step_s


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_with_prompts_arriving_all_the_time_no_gap_is_three_times_the_median(stages):
    """8 running replies, prompts of 64 to 512 tokens one after another."""
    ring = TimedRing(stages, StageCost(step_fixed_ms=30, piece_fixed_ms=30, piece_token_ms=2), chunk=256, in_flight=12)
    replies = [ring.submit(f"a{number}", prompt(20), 250, caller="ann") for number in range(8)]
    for number in range(40):
        tokens = 64 + (number * 191) % 449
        ring.at(1.0 + 0.3 * number, lambda number=number, tokens=tokens: ring.submit(f"b{number}", prompt(tokens), 2))
    ring.run()
    gaps = gaps_between(replies, ring.started_s + 1.0, float("inf"))

    assert max(gaps) <= 3 * median(gaps)


def gaps_between(replies: list, since_s: float, until_s: float) -> list[float]:
    """Between tokens that came in a time."""
    timed = [pair for reply in replies for pair in zip(reply.gaps_s, reply.token_s[1:], strict=True)]
    return [gap_s for gap_s, token_s in timed if since_s <= token_s <= until_s]


@pytest.mark.parametrize("stages", [2, 4])
def test_two_streams_a_stage_keep_every_stage_busy(stages):
    ring = TimedRing(stages, in_flight=2 * stages)
    replies = [ring.submit(str(number), prompt(5), 200) for number in range(2 * stages)]
    ring.run()
    took_s = max(reply.token_s[-1] for reply in replies) - ring.started_s

    assert min(counters.busy_s / took_s for counters in ring.counters) >= 0.92


def test_eight_streams_over_four_stages_and_slow_links_are_more_than_four_times_one():
    """20 ms there and back: half of a lap is links."""

    def tokens_per_s(streams: int) -> float:
        ring = TimedRing(4, StageCost(step_row_ms=0.0), link_ms=10, in_flight=8)
        replies = [ring.submit(str(number), prompt(5), 100) for number in range(streams)]
        ring.run()
        return streams * 100 / (max(reply.token_s[-1] for reply in replies) - ring.started_s)

    assert tokens_per_s(8) >= 4 * tokens_per_s(1)


def test_slow_links_are_filled_with_more_groups_than_stages():
    """A lap of 2 x 11 ms compute and 80 ms links, steps that cost nearly all by the session: smaller groups win."""
    cost = StageCost(step_fixed_ms=1, step_row_ms=10)
    ring = TimedRing(2, cost, link_ms=40, in_flight=8)
    replies = [ring.submit(str(number), prompt(5), 200) for number in range(8)]
    ring.run()
    settled = [gap_s for reply in replies for gap_s in reply.gaps_s[100:150]]

    assert median(settled) <= 1.1 * 0.102  # two groups of four take 2 x 41 + 80 ms


def test_a_prompt_in_pieces_overlaps_on_all_stages():
    """1,500 tokens in 6 pieces over 2 stages: at least 92 % of S x m / (m + S - 1)."""
    ring = TimedRing(2, StageCost(piece_fixed_ms=0, piece_token_ms=1), chunk=250)
    heard = ring.submit("a", prompt(1500), 1)
    ring.run()
    took_s = heard.token_s[0] - ring.started_s

    assert 2 * 1.5 / took_s >= 0.92 * 2 * 6 / (6 + 2 - 1)


def test_the_prompts_of_two_callers_go_on_by_turns_and_by_weight():
    ring = TimedRing(1, StageCost(piece_fixed_ms=0, piece_token_ms=1), chunk=100)
    light = ring.submit("light", prompt(1000), 1, caller="ann", weight=1)
    heavy = ring.submit("heavy", prompt(1000), 1, caller="bob", weight=3)
    ring.run()

    assert heavy.token_s[0] - ring.started_s == pytest.approx(1.333, abs=0.15)
    assert light.token_s[0] - ring.started_s == pytest.approx(2.0)


def test_a_short_prompt_does_not_wait_for_the_long_one_before_it():
    ring = TimedRing(2, StageCost(piece_fixed_ms=0, piece_token_ms=1), chunk=100)
    long = ring.submit("long", prompt(2000), 1, caller="ann")
    short = ring.submit("short", prompt(50), 1, caller="ann")
    ring.run()

    assert short.token_s[0] - ring.started_s < 0.5
    assert long.token_s[0] - ring.started_s > 2.0


def test_the_parts_of_a_reply_add_up_to_its_whole_time():
    """All of it known: 3 stages, links of 5 ms, drawing 1 ms, one reply alone."""
    cost = StageCost(step_fixed_ms=10, step_row_ms=0, piece_fixed_ms=20, piece_token_ms=0, sample_ms=1)
    ring = TimedRing(3, cost, link_ms=5)
    heard = ring.submit("a", prompt(7), 11)
    ring.run()
    timing = heard.finished.timing

    assert timing.queue_ms == 0
    assert timing.prefill_ms == pytest.approx(3 * 20 + 1 + 3 * 5)
    assert list(timing.prefill_stage_ms) == pytest.approx([20, 20, 20])
    assert list(timing.stage_ms) == pytest.approx([10, 10, 10])
    assert timing.sample_ms == pytest.approx(1)
    assert timing.link_ms == pytest.approx(15, abs=0.01)
    assert timing.wait_ms == pytest.approx(0, abs=0.01)
    assert timing.decode_ms == pytest.approx(10 * 46)
    assert timing.batch_mean == 1


@pytest.mark.parametrize("stages", [1, 2, 4])
def test_the_parts_add_up_when_everybody_waits_for_everybody(stages):
    """link_ms is the links alone, whatever waits in front of whom."""
    cost = StageCost(sample_ms=2)
    ring = TimedRing(stages, cost, link_ms=3 if stages > 1 else 0, in_flight=6, chunk=64)
    heard = [ring.submit(str(number), prompt(30 + 40 * number), 40 + number) for number in range(6)]
    ring.at(0.4, lambda: heard.append(ring.submit("late", prompt(300), 40)))
    ring.run()

    for reply in heard:
        timing, decoded = reply.finished.timing, reply.finished.completion_tokens - 1
        per_token_ms = sum(timing.stage_ms) + timing.sample_ms + timing.wait_ms + timing.link_ms
        assert decoded * per_token_ms == pytest.approx(timing.decode_ms, rel=0.001)
        assert timing.link_ms == pytest.approx(3 * stages if stages > 1 else 0, abs=0.01)
        assert 1 <= timing.batch_mean <= 6


def test_every_session_of_a_batch_counts_the_whole_step():
    ring = TimedRing(1, StageCost(step_fixed_ms=10, step_row_ms=2, piece_fixed_ms=0, piece_token_ms=0))
    heard = [ring.submit(str(number), prompt(3), 50) for number in range(4)]
    ring.run()

    assert [reply.finished.timing.stage_ms[0] for reply in heard] == pytest.approx([18] * 4, rel=0.05)
