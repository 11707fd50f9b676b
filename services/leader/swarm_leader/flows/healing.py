"""Brings a ring back that broke: level-triggered, from its record and from what fellows hold. Judges no event."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import FellowLost, StaleEpoch, SwarmError

from swarm_leader.domain.healing.choose import Choice
from swarm_leader.domain.incidents import IncidentKind, IncidentRecord, Outcome
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.giving_up import GivingUp
from swarm_leader.flows.handing_over import Handed, HandingOver
from swarm_leader.flows.healing_case import Case
from swarm_leader.flows.healing_course import HealingCourse
from swarm_leader.flows.incidents import Incidents
from swarm_leader.flows.tasks import TaskSet

log = structlog.get_logger()


class Healing:
    """Heals rings. One task a placement; what is heard meanwhile makes it look again."""

    def __init__(
        self,
        board: Board,
        course: HealingCourse,
        handing_over: HandingOver,
        giving_up: GivingUp,
        incidents: Incidents,
        tasks: TaskSet,
        clock: Clock,
    ) -> None:
        self._board = board
        self._course = course
        self._handing_over = handing_over
        self._giving_up = giving_up
        self._incidents = incidents
        self._tasks = tasks
        self._clock = clock
        self._cases: dict[str, Case] = {}  # by placement id

    def report(
        self,
        placement: Placement,
        kind: IncidentKind,
        why: SwarmError,
        complaint: int | None = None,
        seen_at_s: float | None = None,
    ) -> None:
        """Something is not as it should be with a placement that holds memory.

        why: what its replies are told in the end, if nothing helps. complaint: a stage to which a link is broken.
        seen_at_s: the last sign of life of what is lost. Returns at once; from now on the placement is healing.
        """
        case = self._cases.get(placement.record.placement_id)
        if case is not None:
            case.take(kind, why, complaint)
            return
        if not placement.state.holds_memory or not self._board.is_current(placement):
            return
        is_loading = placement.task is not None and not placement.task.done()
        if is_loading and kind in (IncidentKind.LINK, IncidentKind.STALL):
            return  # its load wires it, and looks at broken links itself
        case = Case(placement, kind, why, self._clock.monotonic_s(), seen_at_s)
        if complaint is not None:
            case.complaints.add(complaint)
        if is_loading:
            self._start(case, self._course.load_again(case))
        else:
            placement.task = self._start(case, self._course.heal(case))

    def take_lost_load(self, placement: Placement, why: SwarmError) -> None:
        """A load failed because a machine or a stage's process was lost: the fleet may have others."""
        case = Case(placement, IncidentKind.LOST, why, self._clock.monotonic_s())
        self._start(case, self._course.load_again(case))

    def resume(self, placement: Placement, incident: IncidentRecord | None) -> None:
        """The leader started: bring back what its ledger says was held. incident: what was being done about it."""
        why = FellowLost(f"the leader started, and not every fellow of {placement.model_id} came back")
        case = Case(placement, IncidentKind.RESTART, why, self._clock.monotonic_s(), incident=incident, is_resumed=True)
        if incident is not None:
            case.kind, case.fresh = incident.kind, set(incident.stages)
        placement.task = self._start(case, self._course.heal(case))

    def await_fellow(self, placement: Placement, incident: IncidentRecord) -> None:
        """The leader started, and this one was given up until another fellow joins."""
        why = FellowLost(placement.record.reason)
        self._giving_up.keep(Case(placement, incident.kind, why, self._clock.monotonic_s(), incident=incident))

    async def forget(self, incident: IncidentRecord) -> None:
        """The leader started, and what an open incident is about is over."""
        record = self._board.by_id(incident.placement_id) or self._board.get(incident.model_id)
        if record is not None:
            case = Case(record, incident.kind, FellowLost(""), self._clock.monotonic_s(), incident=incident)
            await self._incidents.close(case, Outcome.ENDED, "it was over when the leader started")

    async def move(self, placement: Placement, stage_index: int, choice: Choice, why: str) -> None:
        """Have another fellow load a stage of a ready ring while it serves, then hand the stage over to it.

        Raises what loading it raises, and Conflict when the ring changed meanwhile; then the ring is as it was.
        """
        async with self._handing_over.loaded(placement, stage_index, choice) as handed:
            case = Case(placement, IncidentKind.DRAIN, FellowLost(why), self._clock.monotonic_s())
            placement.task = self._start(case, self._hand_over(case, handed))
            await asyncio.wait({placement.task})

    def nudge(self) -> None:
        """A fellow came, or went: whoever waits looks again."""
        for case in self._cases.values():
            case.changed.set()

    def sweep(self) -> None:
        """Try again what was given up, if a fellow is here that was not; forget what somebody ended or loaded."""
        for case in self._giving_up.take_ended():
            self._tasks.start(self._close_ended(case), f"close an incident of {case.model_id}")
        for case in self._giving_up.take_due():
            self._tasks.start(self._guard(case, self._course.try_again(case)), f"try {case.model_id} again")

    async def _hand_over(self, case: Case, handed: Handed) -> Outcome | None:
        await self._handing_over.hand_over(case, handed)
        return await self._course.heal(case)

    def _start(self, case: Case, work: Coroutine[Any, Any, Outcome | None]) -> "asyncio.Task[None]":
        case.placement.is_healing = True
        self._board.notify(case.model_id)
        self._cases[case.placement.record.placement_id] = case
        return self._tasks.start(self._guard(case, work), f"heal {case.model_id}")

    async def _guard(self, case: Case, work: Coroutine[Any, Any, Outcome | None]) -> None:
        """Run a healing to its end, whatever that is."""
        first = case.placement
        try:
            outcome = await work
            if outcome is not None:
                await self._close(case, outcome)
        except StaleEpoch:
            await self._close_ended(case)
        except asyncio.CancelledError:
            # Somebody ended it, or the leader stops, and goes on later.
            if not (case.placement.is_healing or case.is_given_up or case.placement.state.holds_memory):
                await self._close_ended(case)
            raise
        except SwarmError as error:
            await self._giving_up.give_up(case, error.message)
        except Exception as error:
            log.error("healing failed", model=case.model_id, exc_info=error)
            await self._giving_up.give_up(case, "internal error; see the leader's log")
        finally:
            self._let_go(case, first)
            self._let_go(case, case.placement)

    async def _close(self, case: Case, outcome: Outcome) -> None:
        """The model serves. What is heard from now on is another fault: no writing down keeps it from being heard."""
        if outcome is not Outcome.LOADED_ANEW:  # else its task is the load's
            case.placement.task = None
        self._let_go(case, case.placement)
        await self._incidents.close(case, outcome, f"{case.model_id} serves again")

    async def _close_ended(self, case: Case) -> None:
        by_whom = "the swarm was started anew" if case.is_resumed else "it was unloaded or loaded by somebody meanwhile"
        await self._incidents.close(case, Outcome.ENDED, by_whom)

    def _let_go(self, case: Case, placement: Placement) -> None:
        """A placement heals no more, unless another case has taken it up meanwhile."""
        placement_id = placement.record.placement_id
        current = self._cases.get(placement_id)
        if current is case:
            del self._cases[placement_id]
        if current in (case, None):
            placement.is_healing = False
        self._board.notify(case.model_id)
