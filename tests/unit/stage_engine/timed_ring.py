"""A ring in simulated time: stages compute for as long as a cost says, links take a while, everything else nothing."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from silentswarm.ring.v1 import ring_pb2
from swarm_core.clock import ManualClock
from swarm_stage.engine.steps import Step

from tests.unit.stage_engine.arithmetic_compute import ArithmeticCompute
from tests.unit.stage_engine.memory_ring import MemoryRing


@dataclass(frozen=True)
class StageCost:
    """What a stage's steps take, in ms."""

    step_fixed_ms: float = 10.0
    step_row_ms: float = 1.0
    piece_fixed_ms: float = 8.0
    piece_token_ms: float = 0.5
    sample_ms: float = 0.0

    def of(self, steps: Sequence[Step]) -> float:
        if all(_positions(step) == 1 and step.pos for step in steps):
            return self.step_fixed_ms + self.step_row_ms * len(steps)
        return sum(self.piece_fixed_ms + self.piece_token_ms * _positions(step) for step in steps)


def _positions(step: Step) -> int:
    return len(step.ids) if step.ids is not None else step.hidden.shape[0] if step.hidden is not None else 0


class TimedRing(MemoryRing):
    """Every stage has a clock of its own; the one that is furthest behind moves next."""

    def __init__(self, stages: int, cost: StageCost | Sequence[StageCost] = StageCost(), link_ms: float = 0.0, **ring):
        costs = [cost] * stages if isinstance(cost, StageCost) else list(cost)
        clocks = [ManualClock() for _ in range(stages)]
        self._link_s = link_ms / 1e3
        self._planned: list[tuple[float, Callable[[], object]]] = []
        self._sending = 0

        def spend(index: int) -> Callable[[Sequence[Step], bool], tuple[int, int]]:
            def take_time(steps: Sequence[Step], draws: bool) -> tuple[int, int]:
                compute_ms, sample_ms = costs[index].of(steps), costs[index].sample_ms if draws else 0.0
                clocks[index].advance((compute_ms + sample_ms) / 1e3)
                return round(compute_ms * 1e3), round(sample_ms * 1e3)

            return take_time

        computes = [ArithmeticCompute(index == 0, index == stages - 1, spend=spend(index)) for index in range(stages)]
        super().__init__(stages, computes=computes, clocks=clocks, **ring)
        self.started_s = clocks[0].monotonic_s()

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        """Do something on stage 0 so many seconds after the start."""
        self._planned.append((self.started_s + seconds, act))
        self._planned.sort(key=lambda planned: planned[0])

    def deliver(self, stage: int, batch: ring_pb2.FrameBatch) -> None:
        self.links[stage].append((batch, self.clocks[stage - 1].monotonic_s() + self._link_s))

    def run(self, rounds: int = 1_000_000) -> None:
        for _ in range(rounds):
            nexts = [(at_s, stage) for stage in range(len(self.links)) if (at_s := self._next_s(stage)) is not None]
            if not nexts:
                return
            at_s, stage = min(nexts)
            self.clocks[stage].advance(max(0.0, at_s - self.clocks[stage].monotonic_s()))
            self._round(stage)
        raise AssertionError("the ring never came to rest")

    def _next_s(self, stage: int) -> float | None:
        now_s = self.clocks[stage].monotonic_s()
        if self.role(stage).has_work:
            return now_s
        waiting = [arrived_s for _, arrived_s in list(self.links[stage])[:1]]
        waiting += [at_s for at_s, _ in self._planned[:1] if stage == 0]
        return max(now_s, min(waiting)) if waiting else None

    def _round(self, stage: int) -> None:
        """As the engine thread does one."""
        role, queue, now_s = self.role(stage), self.links[stage], self.clocks[stage].monotonic_s()
        while stage == 0 and self._planned and self._planned[0][0] <= now_s:
            self._planned.pop(0)[1]()
        while queue and queue[0][1] <= now_s:
            batch, arrived_s = queue.popleft()
            if stage:
                role.look_ahead([behind for behind, behind_s in queue if behind_s <= now_s])
            role.on_batch(batch, arrived_s)
            if stage:
                break
        if role.has_work:
            role.turn()
        role.refresh_counters()
