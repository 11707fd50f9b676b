"""The table of speeds: medians, verdicts and lines."""

import pytest
from swarm_stage.engine.steps import Step

from tests.bench.figures import NO_TARGET, Pair, Row, Target, Unit, quantile, table
from tests.bench.ring import Sleep
from tests.bench.sleeping_stage import SleepingCompute, StepCost
from tests.bench.streams import Reply, steady_rate


def row(target: Target, *figures: float) -> Row:
    return Row("speed", target, tuple(Pair(figure, 1.0, figure) for figure in figures), "ours", "theirs")


def test_the_median_of_the_pairs_is_what_counts():
    assert row(Target(1.0, 2.0), 0.5, 1.5, 9.0).figure == 1.5


@pytest.mark.parametrize(
    ("target", "figure", "verdict"),
    [
        (Target(1.3, 1.6), 1.2, "NOT MET"),
        (Target(1.3, 1.6), 1.3, "floor met"),
        (Target(1.3, 1.6), 1.7, "aim met"),
        (Target(5.0, 3.0, is_least=False), 6.0, "NOT MET"),
        (Target(5.0, 3.0, is_least=False), 4.0, "floor met"),
        (Target(5.0, 3.0, is_least=False), 3.0, "aim met"),
        (NO_TARGET, 9.0, "no target"),
    ],
)
def test_a_verdict_says_which_bound_is_reached(target: Target, figure: float, verdict: str):
    assert row(target, figure).verdict == verdict


def test_the_table_shows_bounds_median_verdict_and_every_pair():
    written = table([row(Target(0.85, 0.92, Unit.PERCENT), 0.8, 0.9, 0.95)], ["a quiet machine"])

    assert "| speed | 85.0 % | 92.0 % | **90.0 %** | floor met |" in written
    assert "80.0 % (0.8 / 1); 90.0 % (0.9 / 1); 95.0 % (0.95 / 1)" in written
    assert "- a quiet machine" in written


def test_a_quantile_is_the_nearest_value():
    assert (quantile([3, 1, 2, 4], 0.5), quantile([3, 1, 2, 4], 0.99)) == (3, 4)


def test_the_steady_rate_counts_only_while_all_decode():
    """Both run from second 2 to 4: one token every half second, and one every second."""
    quick = Reply(0.0, [1.0 + index / 2 for index in range(20)])
    slow = Reply(0.0, [2.0, 3.0, 4.0])

    assert steady_rate([quick, slow]) == (4 + 2) / 2


def test_a_sleeping_stage_sleeps_for_rows_together_and_for_pieces_by_length():
    cost = StepCost(base_s=0.004, row_s=0.001, token_s=0.0002)
    rows = [Step(session, 10, ids=(1,)) for session in range(3)]
    piece = Step(9, 0, ids=tuple(range(100)))

    assert cost.of(rows) == pytest.approx(0.007)
    assert cost.of([piece]) == pytest.approx(0.024)
    assert cost.of([*rows, piece]) == pytest.approx(0.031)


def test_a_sleeping_stage_answers_as_a_slice_does():
    compute = SleepingCompute(StepCost(0, 0, 0), Sleep().hidden_size, is_last=True)
    compute.open(1)
    wanted = compute.forward([Step(1, 0, ids=(5, 6), sample=True)])[0]
    unknown = compute.forward([Step(2, 0, ids=(5,))])[0]

    assert wanted.token is not None and wanted.error is None
    assert unknown.error is not None
    assert compute.held_tokens() == 2
