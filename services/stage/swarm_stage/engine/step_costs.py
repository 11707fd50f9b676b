"""What a step costs on each stage and what a lap costs in links, learned from the steps themselves. Pure arithmetic."""

from collections.abc import Sequence
from dataclasses import dataclass

from silentswarm.ring.v1 import ring_pb2

STEP_KEEP = 0.95  # weight of the older steps at each new one: about the last 20 count
PIECE_KEEP = 0.8  # pieces grow dearer along a prompt, so only about the last 5 count
LINK_KEEP = 0.9
SPREAD_MIN = 0.1  # sizes must differ by this share of their mean to tell the fixed part from the part per row
SURPRISE_MAX = 4.0  # a step that took longer than this times what was foreseen was disturbed by something else


@dataclass(frozen=True, slots=True)
class Cost:
    """fixed_ms + per_row_ms x rows.

    is_fitted: both parts were seen; else all of it is taken to grow with the rows. seen_rows: mean of the steps it was
    learned from; far beyond it is a guess.
    """

    fixed_ms: float
    per_row_ms: float
    is_fitted: bool = True
    seen_rows: float = float("inf")

    def of(self, rows: int) -> float:
        """Of a step of so many rows, in ms."""
        return self.fixed_ms + self.per_row_ms * rows


class LearnedCost:
    """Least squares over recent steps, older ones fading. Five sums, whatever was seen."""

    def __init__(self, keep: float) -> None:
        self._keep = keep
        self._weight = self._rows = self._ms = self._rows_rows = self._rows_ms = 0.0
        self._per_row_ms: float | None = None  # the newest that could be told
        self.cost: Cost | None = None  # None before the first step

    def note(self, rows: int, ms: float) -> None:
        """A step of so many rows took so long."""
        if self.cost is not None and self.cost.is_fitted:
            ms = min(ms, SURPRISE_MAX * self.cost.of(rows) + 1.0)
        keep = self._keep
        self._weight = keep * self._weight + 1
        self._rows = keep * self._rows + rows
        self._ms = keep * self._ms + ms
        self._rows_rows = keep * self._rows_rows + rows * rows
        self._rows_ms = keep * self._rows_ms + rows * ms
        self.cost = self._fit()

    def _fit(self) -> Cost:
        mean_rows, mean_ms = self._rows / self._weight, self._ms / self._weight
        variance = self._rows_rows / self._weight - mean_rows**2
        if variance > (SPREAD_MIN * mean_rows) ** 2:
            slope = (self._rows_ms / self._weight - mean_rows * mean_ms) / variance
            self._per_row_ms = max(0.0, slope)
        if self._per_row_ms is None:
            return Cost(0.0, mean_ms / mean_rows, is_fitted=False, seen_rows=mean_rows)
        per_row_ms = min(self._per_row_ms, mean_ms / mean_rows)  # the fixed part is never negative
        return Cost(mean_ms - per_row_ms * mean_rows, per_row_ms, seen_rows=mean_rows)


class RingCosts:
    """Costs of every stage of a ring, from the traces that come back with answers."""

    def __init__(self, stage_count: int) -> None:
        self._steps = [LearnedCost(STEP_KEEP) for _ in range(stage_count)]
        self._pieces = [LearnedCost(PIECE_KEEP) for _ in range(stage_count)]
        self.link_ms = 0.0  # of a whole lap; 0 until measured
        self._has_link = False
        self.version = 0  # grows with everything noted

    @property
    def stage_count(self) -> int:
        """Stages of the ring."""
        return len(self._steps)

    @property
    def steps(self) -> list[Cost] | None:
        """Decode steps, rows being sessions; None while a stage is unknown."""
        return _known(self._steps)

    @property
    def are_steps_fitted(self) -> bool:
        """Every stage has shown what a larger batch costs."""
        return all(cost.cost is not None and cost.cost.is_fitted for cost in self._steps)

    @property
    def pieces(self) -> list[Cost] | None:
        """Prompt pieces, rows being tokens; None while a stage is unknown."""
        return _known(self._pieces)

    def note_step(self, sessions: int, traces: Sequence[ring_pb2.Trace], lap_ms: float) -> None:
        """A decode batch of so many sessions came back lap_ms after its compute began."""
        if not self._note(self._steps, sessions, traces):
            return
        known_us = sum(trace.compute_us + trace.sample_us for trace in traces)
        known_us += sum(trace.wait_us for trace in traces[1:])  # stage 0's wait was before the lap
        link_ms = max(0.0, lap_ms - known_us / 1e3)
        self.link_ms = LINK_KEEP * self.link_ms + (1 - LINK_KEEP) * link_ms if self._has_link else link_ms
        self._has_link = True

    def note_piece(self, tokens: int, traces: Sequence[ring_pb2.Trace]) -> None:
        """A prompt piece of so many tokens came back."""
        self._note(self._pieces, tokens, traces)

    def _note(self, costs: list[LearnedCost], rows: int, traces: Sequence[ring_pb2.Trace]) -> bool:
        if len(traces) != len(costs) or rows < 1:
            return False
        for cost, trace in zip(costs, traces, strict=True):
            cost.note(rows, (trace.compute_us + trace.sample_us) / 1e3)
        self.version += 1
        return True


def _known(costs: list[LearnedCost]) -> list[Cost] | None:
    known = [cost.cost for cost in costs if cost.cost is not None]
    return known if len(known) == len(costs) else None
