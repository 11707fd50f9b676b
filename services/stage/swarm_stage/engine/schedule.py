"""How many decode batches go round a ring at once, and how long a prompt piece beside them may be. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from swarm_stage.engine.step_costs import Cost, RingCosts

PIECE_TOKENS_MIN = 16  # shorter ones read all weights for next to nothing; longer ones are a multiple of it
PIECE_TOKENS_UNMEASURED = 32
GAIN_MIN = 0.03  # what another number of groups than one per stage must win; less is noise of the estimates
SHARE = 0.8  # of decoding's time that prompts may take beside it; 1 would double it, and estimates are estimates
RARE_CYCLES = 2.1  # more than 2: fewer than half of the gaps between tokens then have a piece in them
RARE_GAIN_MIN = 1.3  # how much faster a prompt must get on for the longer gaps that large pieces make
SEEN_TIMES_MAX = 4  # how much longer a piece may be than those that costs were learned from
COST_MS_MIN = 0.001  # the grain of traces
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

    Never far beyond what the costs were learned from: short pieces tell little about long ones.
    """
    tokens = min(_affordable(cost, most_ms) for cost in piece_costs)
    return max(PIECE_TOKENS_MIN, tokens // PIECE_TOKENS_MIN * PIECE_TOKENS_MIN)


@dataclass(frozen=True, slots=True)
class Pace:
    """How prompt pieces go beside decoding: of so many tokens, one in so many cycles.

    piece_ms: foreseen on the slowest stage; never 0.
    """

    tokens: int
    piece_ms: float
    cycles: float


def pace_pieces(
    piece_costs: Sequence[Cost], cycle_ms: float, convoy: int, held_up_cycles: float, tokens_max: int
) -> Pace:
    """The pace at which a prompt gets on fastest while both median and mean of others' gaps at most double.

    Either steadily: pieces so small that every step may wait for one. Or rarely: pieces that hold a step up by as much
    as held_up_cycles, but fewer than half of all steps; a piece reads all weights whatever its length, so that few
    large ones get a prompt on faster at the same price.
    convoy: how many times a step may wait for one piece; a piece is that part of what a step may wait.
    """

    def pace(most_cycles: float, cycles_min: float) -> Pace:
        tokens = min(tokens_max, piece_tokens(piece_costs, most_cycles * cycle_ms / convoy))
        piece_ms = max(COST_MS_MIN, *(cost.of(tokens) for cost in piece_costs))
        return Pace(tokens, piece_ms, max(cycles_min, piece_ms / (SHARE * cycle_ms)))

    steadily, rarely = pace(SHARE, 0.0), pace(held_up_cycles, RARE_CYCLES)
    if steadily.piece_ms > cycle_ms:  # the shortest there is, and it more than doubles the gap of a step that waits
        return rarely
    if rarely.tokens > steadily.tokens and not all(cost.is_fitted for cost in piece_costs):
        return rarely  # what length costs is learned from pieces of several lengths
    gain = (rarely.tokens / rarely.cycles) / (steadily.tokens / steadily.cycles)
    return rarely if gain >= RARE_GAIN_MIN else steadily


def _affordable(cost: Cost, most_ms: float) -> int:
    left_ms, most_tokens = most_ms - cost.fixed_ms, min(SEEN_TIMES_MAX * cost.seen_rows, 2**31)
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
