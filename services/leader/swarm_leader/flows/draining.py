"""Emptying a machine with nothing lost: who takes its stages, one after the other, also after a restart. Loads none."""

from dataclasses import dataclass, replace

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import Conflict, SwarmError, TooFewFellows

from swarm_leader.domain.healing.choose import Choice
from swarm_leader.domain.ports import FellowStore
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.healing import Healing
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.tasks import TaskSet

log = structlog.get_logger()
AGAIN_S = 10.0  # after a stage could not be handed over


@dataclass(frozen=True)
class Move:
    """A stage on its way to another fellow."""

    model_id: str
    stage_index: int
    to_fellow: str


class Draining:
    """Drains fellows. What is drained is in their records; what is left to do follows from what they hold."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        store: FellowStore,
        replacing: Replacing,
        healing: Healing,
        tasks: TaskSet,
        clock: Clock,
    ) -> None:
        self._board = board
        self._registry = registry
        self._store = store
        self._replacing = replacing
        self._healing = healing
        self._tasks = tasks
        self._clock = clock
        self._busy: set[str] = set()
        self._tried_s: dict[str, float] = {}

    async def drain(self, id_or_name: str) -> list[Move]:
        """Have a fellow emptied; the stages are handed over after this returns.

        Raises FellowNotFound; Conflict when a model of it is not ready; TooFewFellows with names and numbers when
        nobody else can hold one of its stages. Then nothing was changed.
        """
        fellow = self._registry.find(id_or_name)
        moves = []
        for placement in self._board.holding(fellow.fellow_id):
            if placement.state is not PlacementState.READY or placement.is_healing:
                state = placement.told_state.value
                raise Conflict(
                    f"{placement.model_id} is {state} on {fellow.name}; try again when it is ready",
                    fellow=fellow.name,
                    model=placement.model_id,
                )
            index, choice = self._choose(fellow, placement)
            moves.append(Move(placement.model_id, index, choice.fellow_name))
        await self._set(fellow, True)
        self._tried_s.pop(fellow.fellow_id, None)
        self.sweep()
        return moves

    async def undrain(self, id_or_name: str) -> None:
        """Let a fellow take stages again. Raises FellowNotFound."""
        await self._set(self._registry.find(id_or_name), False)

    def sweep(self) -> None:
        """Hand over what drained fellows still hold, as far as it can be now."""
        now_s = self._clock.monotonic_s()
        for fellow in self._registry.all():
            fellow_id = fellow.fellow_id
            is_due = now_s - self._tried_s.get(fellow_id, -AGAIN_S) >= AGAIN_S
            if fellow.record.draining and is_due and fellow_id not in self._busy and self._ready_on(fellow):
                self._busy.add(fellow_id)
                self._tasks.start(self._empty(fellow), f"drain {fellow.name}")

    def _ready_on(self, fellow: Fellow) -> list[Placement]:
        holding = self._board.holding(fellow.fellow_id)
        return [one for one in holding if one.state is PlacementState.READY and not one.is_healing]

    async def _empty(self, fellow: Fellow) -> None:
        """Hand over one stage after the other, so that each sees the room that the one before it left."""
        try:
            for placement in self._ready_on(fellow):
                current = self._registry.get(fellow.fellow_id)
                if current is None or not current.record.draining:
                    return
                if placement not in self._ready_on(current):
                    continue  # it broke, or ended, while the one before it was handed over
                index, choice = self._choose(current, placement)
                await self._healing.move(placement, index, choice, f"fellow {fellow.name} is drained")
        except SwarmError as error:
            self._tried_s[fellow.fellow_id] = self._clock.monotonic_s()
            log.warning("a stage was not handed over", fellow=fellow.name, why=error.message)
        finally:
            self._busy.discard(fellow.fellow_id)

    def _choose(self, fellow: Fellow, placement: Placement) -> tuple[int, Choice]:
        """Which stage of a placement it is, and who takes it. Raises TooFewFellows."""
        stages = placement.record.stages
        index = next(stage.stage_index for stage in stages if stage.fellow_id == fellow.fellow_id)
        chosen = self._replacing.choose(placement, [index], silent=[fellow.fellow_id])
        if index in chosen.missing:
            raise TooFewFellows(f"{placement.model_id}: {chosen.missing[index]}", fellow=fellow.name)
        return index, chosen.choices[index]

    async def _set(self, fellow: Fellow, draining: bool) -> None:
        async with self._registry.changing_records:
            current = self._registry.find(fellow.fellow_id)  # it may have registered anew meanwhile
            if current.record.draining != draining:
                record = replace(current.record, draining=draining)
                await self._store.save(record)
                current.record = record
