"""A stage goes to another fellow while its ring serves: loaded there first, handed over then. Chooses nobody."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from swarm_core.errors import Conflict, SwarmError

from swarm_leader.domain import ledger as rules
from swarm_leader.domain.healing.choose import Choice, Way
from swarm_leader.domain.records import PlacementState, StageRecord
from swarm_leader.flows.board import Board, Placement, StageLive
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.healing_case import Case
from swarm_leader.flows.incidents import Incidents
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.tasks import TaskSet


@dataclass(frozen=True)
class Handed:
    """A stage as another fellow holds it, besides the one whose it still is."""

    stage: StageRecord
    live: StageLive
    fellow_name: str


class HandingOver:
    """Moves stages."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        replacing: Replacing,
        ending: Ending,
        incidents: Incidents,
        tasks: TaskSet,
    ) -> None:
        self._board = board
        self._registry = registry
        self._replacing = replacing
        self._ending = ending
        self._incidents = incidents
        self._tasks = tasks

    @asynccontextmanager
    async def loaded(self, placement: Placement, stage_index: int, choice: Choice) -> AsyncIterator[Handed]:
        """Have another fellow load a stage of a ready ring while it serves. Inside, the stage may be handed over to it.

        Raises what loading it raises, and Conflict when the ring changed meanwhile; then the ring is as it was. Once
        another fellow owns the stage, the one that did is told to end it.
        """
        record, fellow_id = placement.record, choice.stage.fellow_id
        old_id = record.stages[stage_index].fellow_id
        placement.arriving[stage_index] = fellow_id
        try:
            live, stage = await self._replacing.prepare(placement, choice)
            is_same = self._board.is_current(placement) and placement.record.stages[stage_index].fellow_id == old_id
            if not is_same or placement.is_healing or placement.state is not PlacementState.READY:
                raise Conflict(f"the ring of {placement.model_id} changed while a stage of it was loaded elsewhere")
            yield Handed(stage, live, choice.fellow_name)
            if placement.state.holds_memory and placement.record.stages[stage_index].fellow_id != old_id:
                await self._ending.unload_stage(old_id, record.placement_id)
        except SwarmError:
            if choice.way is not Way.HOT and self._registry.is_connected(fellow_id):
                self._tasks.start(
                    self._ending.unload_stage(fellow_id, record.placement_id), "unload what is not needed"
                )
            raise
        finally:
            placement.arriving.pop(stage_index, None)

    async def hand_over(self, case: Case, handed: Handed) -> None:
        """Record a fellow that holds a stage as its owner; the ring is to be wired for it. Raises StaleEpoch."""
        placement, index = case.placement, handed.stage.stage_index
        old_name = self._registry.name_of(placement.record.stages[index].fellow_id)
        words = f"stage {index} goes from {old_name} to {handed.fellow_name}"
        moved = {index: handed.stage}
        await self._board.save(placement, lambda record: rules.move(record, moved, case.why.message), words)
        placement.arriving.pop(index, None)  # not before: until it owns the stage it would be told to end it
        placement.stages[index] = handed.live
        case.fresh.add(index)
        case.has_moved = True
        await self._incidents.note_lost(case, index, old_name)
        await self._incidents.note_replacement(case, index, handed.fellow_name, words)
