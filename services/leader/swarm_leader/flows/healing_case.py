"""One fault that is being dealt with: what is known of it, and what is shown meanwhile. Decides nothing."""

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field, replace

from swarm_core.errors import SwarmError

from swarm_leader.domain import ledger as rules
from swarm_leader.domain.healing.choose import Choice
from swarm_leader.domain.healing.rewiring import Tries
from swarm_leader.domain.healing.words import say_fault, shorten
from swarm_leader.domain.incidents import IncidentKind, IncidentRecord
from swarm_leader.domain.records import PlacementState, StageRecord
from swarm_leader.flows.board import Board, Placement, StageLive

# What is heard first is often only the echo of what is heard next.
_ECHOES = (IncidentKind.RESTART, IncidentKind.LINK, IncidentKind.STALL, IncidentKind.WAY)


@dataclass(frozen=True)
class Arrival:
    """A stage on its way to another fellow, which does not own it yet."""

    choice: Choice
    loading: "asyncio.Task[tuple[StageLive, StageRecord]]"


@dataclass
class Case:
    """A placement that is being brought back.

    why: the fault, as its replies are told when it is given up. opened_at_s, seen_at_s: when it was noticed, and the
    last sign of life before, on the monotonic clock. complaints: stages to which a neighbour's link is broken. refused:
    stages and fellows that were tried and failed. fresh: stages that were loaded since the ring was last wired. faults:
    heard of since it began. moves: rounds of them. tries: to wire it. patience_until_s: how long somebody to hold the
    stages of patient_for is waited for. tried_with: fellows that were connected when nothing could be done.
    is_line_down: lines between its fellows, or to the relay, were why; then it is tried again at again_at_s, wait_s
    after it was given up. is_resumed: it began with a start of the leader. lost: what became of each stage that was
    lost, in a few words. cut_off: those that live and that the ring does not reach. arrivals: those that are loaded
    elsewhere meanwhile. away: those that were lost with their machines and are nobody's yet.
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
    tries: Tries = field(default_factory=Tries)
    has_moved: bool = False
    is_given_up: bool = False
    patience_until_s: float | None = None
    patient_for: tuple[int, ...] = ()
    tried_with: frozenset[str] = frozenset()
    is_line_down: bool = False
    wait_s: float = 0.0
    again_at_s: float | None = None
    is_resumed: bool = False
    lost: dict[int, str] = field(default_factory=dict)
    arrivals: dict[int, Arrival] = field(default_factory=dict)
    cut_off: set[int] = field(default_factory=set)
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


async def show(board: Board, case: Case, reason: str) -> None:
    """Show, and remember, that a placement is being brought back, and why it takes so long: in one short line.

    Raises StaleEpoch when it was overtaken.
    """
    placement, reason = case.placement, shorten(reason)
    if placement.state is not PlacementState.RECOVERING:
        await board.save(placement, lambda record: rules.recover(record, reason), reason)
    elif placement.record.reason != reason:
        board.show(placement, replace(placement.record, reason=reason))
