"""How many decode batches go round a ring at once, and how long a prompt piece beside them may be. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from swarm_stage.engine.step_costs import Cost, RingCosts

PIECE_TOKENS_MIN = 16  # shorter ones read all weights for next to nothing; longer ones are a multiple of it
PIECE_TOKENS_UNMEASURED = 32
GAIN_MIN = 0.03  # what another number of groups than one per stage must win; less is noise of the estimates
FORGET_STEPS = 16  # plans are thought over after so many new measurements, at first after each


@dataclass(frozen=True, slots=True)
class Plan:
    """How the decoding sessions of a ring go round.

    groups: decode batches in the ring at once, at most; never 0. group_size: sessions of one, at most.
    cycle_ms: foreseen time from one token of a session to its next; None before anything was measured.
    """

    groups: int
    group_size: int
    cycle_ms: float | None = None


def plan_groups(
    sessions: int, stage_costs: Sequence[Cost] | None, stage_count: int, lap_link_ms: float, batch_max: int
) -> Plan:
    """Split the decoding sessions into groups, so that they all get their next token soonest.

    With G groups of b sessions every stage works for all of them once a cycle, and one group needs a whole lap:
    cycle = max(G x slowest stage(b), sum of stages(b) + links). A single stage that has not shown how its cost grows
    leaves one group per stage. batch_max: most sessions of a batch, 0 is no cap; then there are enough groups for all.
    """
    if sessions < 1:
        return Plan(stage_count, 1)
    fewest = ceil(sessions / batch_max) if batch_max else 1
    default = min(sessions, max(fewest, stage_count))
    if stage_costs is None:
        return Plan(default, ceil(sessions / default))
    best = default_plan = _foresee(sessions, default, stage_costs, lap_link_ms)
    if all(cost.is_fitted for cost in stage_costs):
        plans = [_foresee(sessions, groups, stage_costs, lap_link_ms) for groups in range(fewest, sessions + 1)]
        best = min(plans, key=lambda plan: plan.cycle_ms or 0.0)
    return best if (best.cycle_ms or 0.0) < (default_plan.cycle_ms or 0.0) * (1 - GAIN_MIN) else default_plan


def _foresee(sessions: int, groups: int, stage_costs: Sequence[Cost], lap_link_ms: float) -> Plan:
    size = ceil(sessions / groups)
    costs_ms = [cost.of(size) for cost in stage_costs]
    return Plan(groups, size, max(groups * max(costs_ms), sum(costs_ms) + lap_link_ms))


def piece_tokens(piece_costs: Sequence[Cost], most_ms: float) -> int:
    """Tokens of a prompt piece that takes no stage longer than most_ms, as far as the floor allows.

    Never more than twice of what the costs were learned from: short pieces tell little about long ones.
    """
    tokens = min(_affordable(cost, most_ms) for cost in piece_costs)
    return max(PIECE_TOKENS_MIN, tokens // PIECE_TOKENS_MIN * PIECE_TOKENS_MIN)


def _affordable(cost: Cost, most_ms: float) -> int:
    left_ms, most_tokens = most_ms - cost.fixed_ms, min(2 * cost.seen_rows, 2**31)
    if left_ms <= 0:
        return 0
    return int(min(left_ms / cost.per_row_ms, most_tokens) if cost.per_row_ms > 0 else most_tokens)


class Planner:
    """The plan for a number of sessions by the costs of now; thought over when enough was measured anew."""

    def __init__(self, costs: RingCosts, batch_max: int) -> None:
        self.costs = costs
        self._batch_max = batch_max
        self._version = 0
        self._plans: dict[int, Plan] = {}

    def plan(self, sessions: int) -> Plan:
        """For so many decoding sessions."""
        costs = self.costs
        if costs.version >= self._version + (FORGET_STEPS if self._version > FORGET_STEPS else 1):
            self._plans.clear()
            self._version = costs.version
        known = self._plans.get(sessions)
        if known is None:
            known = plan_groups(sessions, costs.steps, costs.stage_count, costs.link_ms, self._batch_max)
            self._plans[sessions] = known
        return known
