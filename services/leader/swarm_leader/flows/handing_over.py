"""A stage goes to another fellow while its ring serves: loaded there first, handed over then. Chooses nobody."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

from swarm_core.clock import Clock
from swarm_core.errors import Conflict, FellowLost, SwarmError

from swarm_leader.domain import ledger as rules
from swarm_leader.domain.healing.choose import Choice, Way
from swarm_leader.domain.incidents import IncidentKind
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement, StageLive
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.healing_case import Case, Incidents
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.tasks import TaskSet

Start = Callable[[Case, Coroutine[Any, Any, None]], "asyncio.Task[None]"]
Heal = Callable[[Case], Awaitable[None]]


class HandingOver:
    """Moves stages. start, heal: begin a healing, and bring a ring up whose record says who holds what."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        replacing: Replacing,
        ending: Ending,
        tasks: TaskSet,
        clock: Clock,
        incidents: Incidents,
        start: Start,
        heal: Heal,
    ) -> None:
        self._board = board
        self._registry = registry
        self._replacing = replacing
        self._ending = ending
        self._tasks = tasks
        self._clock = clock
        self._incidents = incidents
        self._start = start
        self._heal = heal

    async def move(self, placement: Placement, stage_index: int, choice: Choice, why: str) -> None:
        """Have another fellow load a stage of a ready ring while it serves, then hand the stage over to it.

        Raises what loading it raises, and Conflict when the ring changed meanwhile; then the ring is as it was.
        """
        record, fellow_id = placement.record, choice.stage.fellow_id
        placement.arriving[stage_index] = fellow_id
        try:
            live, stage = await self._replacing.prepare(placement, choice)
            owner = placement.record.stages[stage_index].fellow_id
            is_same = self._board.is_current(placement) and owner == record.stages[stage_index].fellow_id
            if not is_same or placement.is_healing or placement.state is not PlacementState.READY:
                raise Conflict(f"the ring of {placement.model_id} changed while a stage of it was loaded elsewhere")
            case = Case(placement, IncidentKind.DRAIN, FellowLost(why), self._clock.monotonic_s())
            placement.task = self._start(case, self._hand_over(case, replace(choice, stage=stage), live))
            await asyncio.wait({placement.task})
        except SwarmError:
            if choice.way is not Way.HOT and self._registry.is_connected(fellow_id):
                self._tasks.start(
                    self._ending.unload_stage(fellow_id, record.placement_id), "unload what is not needed"
                )
            raise
        finally:
            placement.arriving.pop(stage_index, None)

    async def _hand_over(self, case: Case, choice: Choice, live: StageLive) -> None:
        """Make a fellow that holds a stage its owner, and wire the ring."""
        placement, index = case.placement, choice.stage.stage_index
        old_id = placement.record.stages[index].fellow_id
        words = f"stage {index} goes from {self._registry.name_of(old_id)} to {choice.fellow_name}"
        moved = {index: choice.stage}
        await self._board.save(placement, lambda record: rules.move(record, moved, case.why.message), words)
        placement.arriving.pop(index, None)  # not before: until it owns the stage it would be told to end it
        live.loaded_epoch = placement.record.epoch - 1  # when its LOAD was sent
        placement.stages[index] = live
        case.fresh.add(index)
        case.has_moved = True
        await self._incidents.note_lost(case, index, self._registry.name_of(old_id))
        await self._incidents.note_replacement(case, index, choice.fellow_name, words)
        await self._heal(case)
        if placement.state.holds_memory and placement.record.stages[index].fellow_id != old_id:
            await self._ending.unload_stage(old_id, placement.record.placement_id)
