"""One fault that is being dealt with: what is known of it, and its durable record. Decides nothing."""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError

from swarm_leader.domain.healing.words import say_fault
from swarm_leader.domain.incidents import IncidentKind, IncidentRecord, Outcome
from swarm_leader.domain.ports import IncidentStore
from swarm_leader.domain.records import StageRecord
from swarm_leader.flows.board import Placement

log = structlog.get_logger()
# What is heard first is often only the echo of what is heard next.
_ECHOES = (IncidentKind.RESTART, IncidentKind.LINK, IncidentKind.STALL, IncidentKind.WAY)


@dataclass
class Case:
    """A placement that is being brought back.

    why: the fault, as its replies are told when it is given up. opened_at_s, seen_at_s: when it was noticed, and the
    last sign of life before, on the monotonic clock. complaints: stages to which a neighbour's link is broken. refused:
    stages and fellows that were tried and failed. fresh: stages that were loaded since the ring was last wired. faults:
    heard of since it began. moves, rewires: tries so far. patience_until_s: how long somebody to hold the stages of
    patient_for is waited for. tried_with: fellows that were connected when nothing could be done. is_resumed: it began
    with a start of the leader. lost: what became of each stage that was lost, in a few words. away: those that were
    lost with their machines and are nobody's yet.
    """

    placement: Placement
    kind: IncidentKind
    why: SwarmError
    opened_at_s: float
    seen_at_s: float | None = None
    incident: IncidentRecord | None = None
    complaints: set[int] = field(default_factory=set)
    refused: set[tuple[int, str]] = field(default_factory=set)
    fresh: set[int] = field(default_factory=set)
    faults: int = 0
    moves: int = 0
    rewires: int = 0
    has_moved: bool = False
    is_given_up: bool = False
    patience_until_s: float | None = None
    patient_for: tuple[int, ...] = ()
    tried_with: frozenset[str] = frozenset()
    is_resumed: bool = False
    lost: dict[int, str] = field(default_factory=dict)
    away: dict[int, StageRecord] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def model_id(self) -> str:
        """Its model."""
        return self.placement.model_id

    @property
    def fault(self) -> str:
        """What happened, in a few words."""
        return "; ".join(self.lost[at] for at in sorted(self.lost)) or say_fault(self.kind, self.why)

    def take(self, kind: IncidentKind, why: SwarmError, complaint: int | None = None) -> None:
        """More was heard of it."""
        if self.kind in _ECHOES and kind not in _ECHOES:
            self.kind, self.why = kind, why
        if complaint is not None:
            self.complaints.add(complaint)
        if kind is not IncidentKind.LINK:  # of those the epoch tells whether they are news
            self.faults += 1
        self.changed.set()

    async def wait(self, wait_s: float) -> None:
        """Until more is heard, this long at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self.changed.wait()


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
        is_drain = case.kind is IncidentKind.DRAIN
        what = f"stage {stage_index} {f'leaves {fellow_name}' if is_drain else f'on {fellow_name} is lost'}"
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
