"""From the relay back to direct links: looks now and then whether stages reach each other again. Wires nothing."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError

from swarm_leader.domain.planning.routes import drop_unlisted, plan_routes
from swarm_leader.domain.records import PlacementState, Route, Transport
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.room import facts_of
from swarm_leader.flows.signals import Signals
from swarm_leader.flows.tasks import gather_all

log = structlog.get_logger()
WAIT_MAX_S = 3600.0  # between two tries, however many were in vain
LOOK_S = 10.0  # how exact the waits are
CHECK_TIMEOUT_S = 5.0


@dataclass
class _Turn:
    """When a placement is looked at next, on the leader's monotonic clock, and how long the wait after that is."""

    due_s: float
    wait_s: float


class RoutesBack:
    """Has rings wired anew whose relayed links could be direct.

    rewire: has a placement wired at its next epoch, direct links first. is_busy: whether a model's replies run; a ring
    is left alone then, unless every fellow of it keeps sessions over an epoch. retry_s: between two looks at one
    placement; it doubles after each in vain, up to WAIT_MAX_S, so that a link that only seems to work costs ever fewer
    breaks.
    """

    def __init__(
        self,
        board: Board,
        registry: Registry,
        signals: Signals,
        rewire: Callable[[Placement, str], None],
        is_busy: Callable[[str], bool],
        clock: Clock,
        retry_s: float,
    ) -> None:
        self._board = board
        self._registry = registry
        self._signals = signals
        self._rewire = rewire
        self._is_busy = is_busy
        self._clock = clock
        self._retry_s = retry_s
        self._turns: dict[str, _Turn] = {}

    async def watch_forever(self) -> None:
        """Until cancelled; returns at once when retry_s is 0, which turns it off."""
        while self._retry_s:
            await asyncio.sleep(min(LOOK_S, self._retry_s / 4))
            await self.look_once()

    async def look_once(self) -> None:
        """Try every placement whose turn it is."""
        now_s = self._clock.monotonic_s()
        placements = self._board.all()
        known = {placement.record.placement_id for placement in placements}
        self._turns = {placement_id: turn for placement_id, turn in self._turns.items() if placement_id in known}
        for placement in placements:
            if placement.state is not PlacementState.READY or placement.is_healing:
                continue  # its turn is kept: a ring that is wired on our account is not forgotten meanwhile
            placement_id = placement.record.placement_id
            if not self._improvable(placement):
                self._turns.pop(placement_id, None)
                continue
            turn = self._turns.setdefault(placement_id, _Turn(now_s + self._retry_s, self._retry_s))
            if turn.due_s <= now_s and await self._try(placement):
                turn.wait_s = min(2 * turn.wait_s, max(WAIT_MAX_S, self._retry_s))
                turn.due_s = self._clock.monotonic_s() + turn.wait_s

    async def _try(self, placement: Placement) -> bool:
        """False when it is not the time for it: replies run that a new epoch would cost a prompt."""
        ring = self._ring(placement)
        if self._is_busy(placement.model_id) and not all(fellow.capabilities.serve_keep for fellow in ring):
            return False
        epoch = placement.record.epoch
        links = self._improvable(placement)
        reached = await gather_all(self._reached(placement, ring, index) for index in links)
        if not all(reached):
            log.info("still by the relay", model=placement.model_id, unreached=len(links) - sum(map(bool, reached)))
        elif placement.state is PlacementState.READY and placement.record.epoch == epoch:
            pairs = ", ".join(f"{ring[index].name} reaches {ring[(index + 1) % len(ring)].name}" for index in links)
            self._rewire(placement, f"{pairs} directly again, and went by the relay")
        return True

    def _improvable(self, placement: Placement) -> list[int]:
        """Relayed links that a wiring would try directly, by the stage that dials."""
        record, ring = placement.record, self._ring(placement)
        if record.transport is not Transport.AUTO or len(ring) != len(record.stages):
            return []
        routes, _ = plan_routes([facts_of(fellow) for fellow in ring], record.transport)
        listens = [bool(placement.stages[stage.stage_index].ring_addresses) for stage in record.stages]
        wanted = drop_unlisted(routes, listens, record.transport)
        return [
            stage.stage_index
            for stage, route in zip(record.stages, wanted, strict=True)
            if stage.route is Route.RELAY and route is Route.DIRECT
        ]

    async def _reached(self, placement: Placement, ring: Sequence[Fellow], index: int) -> str:
        """The address of the next stage that takes a connection from this stage's fellow; "" when none does."""
        fellow = ring[index]
        if not fellow.capabilities.check:
            return ""  # it cannot be asked, and a ring is not broken to find out
        addresses = placement.stages[(index + 1) % len(ring)].ring_addresses
        check = link_pb2.Signal(check=link_pb2.CheckSignal(addresses=addresses))
        try:
            answer = await self._signals.send(self._registry.link_of(fellow.fellow_id), check, CHECK_TIMEOUT_S)
        except SwarmError as error:
            log.debug("cannot ask whom a fellow reaches", fellow=fellow.name, why=error.message)
            return ""
        return answer.check.reached_address

    def _ring(self, placement: Placement) -> list[Fellow]:
        """The fellows of a ring, in order, as far as they are known."""
        stages = placement.record.stages
        return [fellow for stage in stages if (fellow := self._registry.get(stage.fellow_id)) is not None]
