"""The durable record of each fault, and of what is done about it, step by step. Decides nothing."""

import uuid
from collections.abc import Callable
from dataclasses import replace

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError

from swarm_leader.domain.incidents import IncidentKind, IncidentRecord, Outcome
from swarm_leader.domain.ports import IncidentStore
from swarm_leader.flows.healing_case import Case

log = structlog.get_logger()


class Incidents:
    """Writes what happens to cases. A database that fails stops no healing: then it is only logged."""

    def __init__(
        self, store: IncidentStore, clock: Clock, new_id: Callable[[], str] = lambda: uuid.uuid4().hex
    ) -> None:
        self._store = store
        self._clock = clock
        self._new_id = new_id

    async def open(self, case: Case) -> None:
        """Make its record, if it has none yet."""
        if case.incident is not None:
            return
        record, now_s = case.placement.record, self._clock.unix_s()
        opened = IncidentRecord(
            incident_id=self._new_id(),
            placement_id=record.placement_id,
            model_id=record.model_id,
            epoch=record.epoch,
            kind=case.kind,
            opened_s=now_s - (self._clock.monotonic_s() - case.opened_at_s),
            detected_ms=(case.opened_at_s - case.seen_at_s) * 1000 if case.seen_at_s is not None else None,
        )
        await self._save(case, opened.noted("open", case.why.message, now_s))

    async def note(self, case: Case, step: str, what: str) -> None:
        """One line more; the same line twice in a row is said once."""
        await self.open(case)
        incident = case.incident
        assert incident is not None
        if not (incident.log and incident.step == step and incident.log[-1].what == what):
            await self._save(case, replace(incident.noted(step, what, self._clock.unix_s()), kind=case.kind))

    async def note_lost(self, case: Case, stage_index: int, fellow_name: str) -> None:
        """A stage of it is lost, or leaves a machine that is emptied."""
        await self.open(case)
        incident = case.incident
        assert incident is not None
        lost = incident.with_lost(stage_index, fellow_name)
        what = f"stage {stage_index} on {fellow_name} is lost"
        if case.kind is IncidentKind.DRAIN:
            what = f"stage {stage_index} leaves {fellow_name}"
        elif stage_index in case.cut_off:
            what = f"stage {stage_index} on {fellow_name} is cut off from its ring"
        if (lost.stages, lost.lost) != (incident.stages, incident.lost):
            await self._save(case, lost.noted("lost", what, self._now_s()))

    async def note_replacement(self, case: Case, stage_index: int, fellow_name: str, what: str) -> None:
        """Who is to hold a stage of it that was lost."""
        await self.open(case)
        assert case.incident is not None
        named = case.incident.with_lost(stage_index, self._lost_name(case.incident, stage_index))
        named = named.with_replacement(stage_index, fellow_name)
        await self._save(case, named.noted("moving", what, self._now_s()))

    async def close(self, case: Case, outcome: Outcome, what: str) -> None:
        """It is over; nothing is written of one that was never opened."""
        if case.incident is None or not case.incident.is_open:
            return
        closed = case.incident.closed(outcome, what, self._now_s())
        if outcome in (Outcome.RECOVERED, Outcome.MOVED, Outcome.LOADED_ANEW):
            closed = replace(closed, recovered_ms=(self._clock.monotonic_s() - case.opened_at_s) * 1000)
        await self._save(case, closed)

    def _now_s(self) -> float:
        return self._clock.unix_s()

    def _lost_name(self, incident: IncidentRecord, stage_index: int) -> str:
        known = stage_index in incident.stages
        return incident.lost[incident.stages.index(stage_index)] if known else ""

    async def _save(self, case: Case, incident: IncidentRecord) -> None:
        case.incident = incident
        log.info("incident", model=incident.model_id, step=incident.step, what=incident.log[-1].what)
        try:
            await self._store.save(incident)
        except SwarmError as error:
            log.error("an incident was not recorded", model=incident.model_id, why=error.message)
