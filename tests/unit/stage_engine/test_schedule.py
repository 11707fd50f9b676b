"""How many groups go round, how long a piece is, and what the costs behind both are learned to be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from silentswarm.ring.v1 import ring_pb2
from swarm_stage.engine.schedule import (
    PIECE_TOKENS_MIN,
    SEEN_TIMES_MAX,
    SHARE,
    Planner,
    pace_pieces,
    piece_tokens,
    plan_groups,
)
from swarm_stage.engine.step_costs import Cost, LearnedCost, RingCosts


def test_before_anything_is_measured_there_is_one_group_a_stage():
    plan = plan_groups(8, None, stage_count=4, lap_link_ms=0, batch_max=0)

    assert (plan.groups, plan.group_size, plan.cycle_ms) == (4, 2, None)


def test_a_ring_of_one_runs_everything_together():
    assert plan_groups(8, [Cost(30, 2)], stage_count=1, lap_link_ms=0, batch_max=0).group_size == 8


def test_equal_stages_without_links_get_one_group_each():
    plan = plan_groups(8, [Cost(30, 2)] * 2, stage_count=2, lap_link_ms=0, batch_max=0)

    assert (plan.groups, plan.group_size, plan.cycle_ms) == (2, 4, 2 * 38)


def test_slow_links_are_filled_when_smaller_batches_are_cheaper():
    """2 stages, 40 ms of links: with 2 groups of 4 every stage would idle half the time."""
    plan = plan_groups(8, [Cost(1, 10)] * 2, stage_count=2, lap_link_ms=40, batch_max=0)

    assert plan.groups > 2
    assert plan.cycle_ms == max(plan.groups * (1 + 10 * plan.group_size), 2 * (1 + 10 * plan.group_size) + 40)


def test_steps_that_cost_the_same_for_any_batch_are_not_split_further_for_slow_links():
    """More groups than stages would only make every stage step more often for the same tokens."""
    plan = plan_groups(8, [Cost(40, 0)] * 2, stage_count=2, lap_link_ms=40, batch_max=0)

    assert plan.groups == 2


def test_one_slow_stage_among_fast_ones_steps_for_larger_groups():
    plan = plan_groups(8, [Cost(1, 0.1), Cost(40, 0.1), Cost(1, 0.1), Cost(1, 0.1)], 4, lap_link_ms=0, batch_max=0)

    assert plan.groups == 1


def test_a_cap_makes_more_groups_and_never_a_larger_batch():
    plan = plan_groups(8, [Cost(30, 2)] * 2, stage_count=2, lap_link_ms=0, batch_max=2)

    assert (plan.groups, plan.group_size) == (4, 2)


@given(
    sessions=st.integers(1, 64),
    costs=st.lists(st.builds(Cost, st.floats(0, 100), st.floats(0, 50)), min_size=1, max_size=5),
    link_ms=st.floats(0, 300),
    batch_max=st.integers(0, 9),
)
def test_a_plan_serves_all_in_one_cycle_within_the_cap_and_no_worse_than_a_group_a_stage(
    sessions, costs, link_ms, batch_max
):
    plan = plan_groups(sessions, costs, len(costs), link_ms, batch_max)
    default = plan_groups(sessions, None, len(costs), link_ms, batch_max)
    costs_ms = [cost.of(default.group_size) for cost in costs]

    assert 1 <= plan.groups <= max(sessions, 1)
    assert plan.groups * plan.group_size >= sessions
    assert not batch_max or plan.group_size <= batch_max
    assert plan.cycle_ms <= max(default.groups * max(costs_ms), sum(costs_ms) + link_ms) + 1e-6


@given(st.floats(0, 100), st.floats(0, 10), st.floats(0, 1000))
def test_a_piece_fits_its_time_or_is_the_shortest_there_is(fixed_ms, token_ms, most_ms):
    tokens = piece_tokens([Cost(fixed_ms, token_ms)], most_ms)

    assert tokens % PIECE_TOKENS_MIN == 0
    assert tokens == PIECE_TOKENS_MIN or fixed_ms + token_ms * tokens <= most_ms + 1e-6


def test_a_piece_grows_no_faster_than_what_was_seen():
    assert piece_tokens([Cost(1, 0, seen_rows=40)], most_ms=1e6) == SEEN_TIMES_MAX * 40


@given(
    costs=st.lists(st.builds(Cost, st.floats(0, 100), st.floats(0, 10), st.booleans()), min_size=1, max_size=4),
    cycle_ms=st.floats(1, 500),
    held_up_cycles=st.floats(1, 4),
)
def test_a_pace_takes_its_share_of_the_time_and_doubles_fewer_than_half_of_the_gaps(costs, cycle_ms, held_up_cycles):
    pace = pace_pieces(costs, cycle_ms, len(costs), held_up_cycles, tokens_max=256)

    assert pace.piece_ms <= SHARE * pace.cycles * cycle_ms + 1e-6
    assert pace.piece_ms <= cycle_ms or pace.cycles > 2
    assert pace.tokens == PIECE_TOKENS_MIN or pace.piece_ms <= held_up_cycles * cycle_ms / len(costs) + 1e-6


def test_pieces_are_large_and_rare_where_a_small_one_costs_nearly_as_much():
    """A step of 100 ms: every third may wait 275 ms for 224 tokens, or each 80 ms for 32."""
    assert pace_pieces([Cost(50, 1)], 100, 1, 2.75, tokens_max=256).tokens == 224
    assert pace_pieces([Cost(50, 1)], 100, 1, 2.75, tokens_max=256).cycles == pytest.approx(274 / 80)
    assert pace_pieces([Cost(1, 2)], 100, 1, 2.75, tokens_max=256).tokens == 32


@given(fixed=st.floats(0, 50), row=st.floats(0, 20), sizes=st.lists(st.integers(1, 16), min_size=8, max_size=60))
def test_a_cost_is_learned_from_steps_of_different_sizes(fixed, row, sizes):
    learned = LearnedCost(keep=0.95)
    for size in [1, 8, *sizes]:
        learned.note(size, fixed + row * size)

    assert learned.cost.is_fitted
    assert learned.cost.of(4) == pytest.approx(fixed + 4 * row, abs=1.1)


def test_a_cost_of_one_size_only_is_not_taken_apart():
    learned = LearnedCost(keep=0.95)
    for _ in range(10):
        learned.note(4, 20)

    assert not learned.cost.is_fitted
    assert learned.cost.of(4) == pytest.approx(20)


def test_one_disturbed_step_does_not_change_the_cost_for_long():
    learned = LearnedCost(keep=0.95)
    for size in [1, 2, 4, 8] * 10:
        learned.note(size, 10 + size)
    learned.note(4, 5000)
    for size in [1, 2, 4, 8] * 5:
        learned.note(size, 10 + size)

    assert learned.cost.of(4) == pytest.approx(14, rel=0.15)


def test_a_cost_that_changes_for_good_is_followed():
    learned = LearnedCost(keep=0.95)
    for size in [1, 2, 4, 8] * 10:
        learned.note(size, 10 + size)
    for size in [1, 2, 4, 8] * 25:
        learned.note(size, 100 + 10 * size)

    assert learned.cost.of(4) == pytest.approx(140, rel=0.1)


def traces(*compute_us: int, wait_us: int = 0) -> list[ring_pb2.Trace]:
    return [ring_pb2.Trace(compute_us=us, wait_us=wait_us) for us in compute_us]


def test_links_are_what_is_left_of_a_lap():
    costs = RingCosts(2)
    costs.note_step(1, traces(10_000, 20_000, wait_us=3_000), lap_ms=63)

    assert costs.link_ms == pytest.approx(30)  # stage 0's wait was before the lap


def test_traces_that_are_not_one_a_stage_teach_nothing():
    costs = RingCosts(3)
    costs.note_step(1, traces(10_000, 20_000), lap_ms=63)

    assert costs.steps is None and costs.link_ms == 0


def test_a_plan_is_thought_over_when_costs_were_measured():
    costs = RingCosts(2)
    planner = Planner(costs, batch_max=0)
    before = planner.plan(8)
    for sessions in (1, 2, 4, 8):
        costs.note_step(sessions, traces(10_000 * sessions, 10_000 * sessions), lap_ms=20 * sessions + 100)

    assert before.cycle_ms is None
    assert planner.plan(8).cycle_ms == pytest.approx(120, rel=0.05)
    assert planner.plan(8).groups > 2
