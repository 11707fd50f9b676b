"""Bringing a ring up: one epoch after another until one position went all the way round. Loads and unloads nothing."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

import structlog
from silentswarm.core.v1.link_pb2 import RingKeys
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import FellowLost, LinkBroken, LoadFailed, SwarmError

from swarm_leader.config import LeaderConfig
from swarm_leader.domain import ledger as rules
from swarm_leader.domain.healing.rewiring import Down, read_down
from swarm_leader.domain.planning.mesh import read_networks, say_unusable, usable_addresses
from swarm_leader.domain.planning.routes import drop_unlisted, fall_back, plan_routes
from swarm_leader.domain.records import PlacementState, Route
from swarm_leader.domain.told import cut_words
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.link_keys import LinkKeys
from swarm_leader.flows.registry import Fellow, Held, Registry
from swarm_leader.flows.room import facts_of
from swarm_leader.flows.signals import Signals
from swarm_leader.flows.tasks import gather_all
from swarm_leader.flows.words import route_to_proto

log = structlog.get_logger()


REWIRE_S = 4.0  # a ring that came up quickly once has so long, and those that took their time so many times as long:
REWIRE_TIMES = 4


@dataclass(frozen=True)
class Failed:
    """Why a stage did not join. is_own: its fellow did not do what it was told, whatever its links are."""

    words: str
    is_own: bool = False


@dataclass(frozen=True)
class Attempt:
    """What came of one epoch. failed: links that did not come up, by the stage that dials. lap_error: no lap."""

    failed: dict[int, Failed]
    lap_error: SwarmError | None = None

    @property
    def is_up(self) -> bool:
        """A position went round."""
        return not self.failed and self.lap_error is None


@dataclass(frozen=True)
class Keeping:
    """What stages keep over an epoch. sessions: they keep theirs. fresh: stages that hold nothing of an older epoch."""

    sessions: bool = False
    fresh: tuple[int, ...] = ()


@dataclass(frozen=True)
class RingDown:
    """A ring did not come up, by any way. down: what that says of its stages; error: the same for people."""

    down: Down
    error: SwarmError


class Wiring:
    """Wires rings."""

    def __init__(
        self, board: Board, registry: Registry, signals: Signals, keys: LinkKeys, config: LeaderConfig
    ) -> None:
        self._board = board
        self._registry = registry
        self._signals = signals
        self._keys = keys
        self._config = config
        self._networks = read_networks(config.mesh_networks)

    async def wire(self, placement: Placement, epoch: int, keeping: Keeping | None = None) -> None:
        """Wire the ring as `try_to_wire` does. Raises LoadFailed or LinkBroken too (both ends and addresses named)."""
        ring_down = await self.try_to_wire(placement, epoch, keeping)
        if ring_down is not None:
            raise ring_down.error

    async def try_to_wire(self, placement: Placement, epoch: int, keeping: Keeping | None = None) -> RingDown | None:
        """Wire the ring at `epoch`, and at the next ones while there is a way left to fall back to. None: it is up.

        keeping: of a ring that was wired before; None for one that never was.

        Each attempt is recorded before a fellow hears of it. AUTO: direct links that do not come up go by the relay;
        all of them, when they came up and still no lap went round. TUNNEL, P2P and MESH have no way to fall back to.
        Raises LoadFailed (a stage listens nowhere), FellowLost, StaleEpoch, CapabilityMissing (a fellow that cannot
        prove itself, where that is asked for).
        """
        self.check([stage.fellow_id for stage in placement.record.stages])
        routes = self._first_routes(placement)
        while True:
            attempt = await self._attempt(placement, epoch, routes, keeping)
            if attempt.is_up and placement.broken_epoch < epoch:
                return None
            said = {index: failure.words for index, failure in attempt.failed.items()}
            log.info("ring did not come up", model=placement.model_id, epoch=epoch, failed=said)
            following = fall_back(routes, said, placement.record.transport)
            if following is None:
                own = [index for index, failure in attempt.failed.items() if failure.is_own]
                return RingDown(read_down(routes, attempt.failed, own), self._say_failed(placement, routes, attempt))
            routes, epoch = following, epoch + 1

    def check(self, fellow_ids: Sequence[str]) -> None:
        """Whether a ring of these can be wired at all, as far as proofs go. Raises CapabilityMissing."""
        fellows = (self._registry.get(fellow_id) for fellow_id in fellow_ids)
        self._keys.check([fellow for fellow in fellows if fellow is not None])

    def _first_routes(self, placement: Placement) -> tuple[Route, ...]:
        """The way to try first, from what the fellows declare and where they listen now."""
        record = placement.record
        ring = [facts_of(fellow) for fellow in self._fellows(placement)]
        routes, _ = plan_routes(ring, record.transport)
        listens = [bool(self._addresses_of(placement, stage.stage_index)) for stage in record.stages]
        routes = drop_unlisted(routes, listens, record.transport)
        if record.transport.demands_direct and len(ring) > 1 and not all(listens):
            index = listens.index(False)
            name, addresses = ring[index].name, placement.stages[index].ring_addresses
            raise LoadFailed(say_unusable(name, addresses, record.transport), fellow=name)
        return routes

    def _addresses_of(self, placement: Placement, stage_index: int) -> tuple[str, ...]:
        """Where the stage before this one may dial it."""
        offered = placement.stages[stage_index].ring_addresses
        return usable_addresses(offered, placement.record.transport, self._networks)

    def _fellows(self, placement: Placement) -> list[Fellow]:
        """The fellows of a ring, in order. Raises FellowLost."""
        record = placement.record
        fellows = [fellow for stage in record.stages if (fellow := self._registry.get(stage.fellow_id)) is not None]
        if len(fellows) != len(record.stages):
            raise FellowLost(f"a fellow of {record.model_id} was deleted")
        return fellows

    async def _attempt(
        self, placement: Placement, epoch: int, routes: Sequence[Route], keeping: Keeping | None
    ) -> Attempt:
        """One epoch: record it, wire all stages at the same time, then send a lap."""
        words = ", ".join(route.value for route in routes)
        await self._board.save(
            placement,
            lambda record: replace(
                rules.set_routes(record, tuple(routes)), epoch=epoch, state=PlacementState.WIRING, reason=""
            ),
            f"wiring at epoch {epoch}: {words}",
        )
        keys = self._keys.make(placement.record.placement_id, epoch, self._fellows(placement))
        began_s = asyncio.get_running_loop().time()
        outcomes = await gather_all(
            self._wire_stage(placement, epoch, index, routes, keys[index], keeping) for index in range(len(routes))
        )
        failed = {index: failure for index, failure in enumerate(outcomes) if failure is not None}
        if failed:
            return Attempt(failed)
        placement.wired_in_s = asyncio.get_running_loop().time() - began_s
        try:
            await self.probe(placement, self._config.probe_timeout_s)
        except FellowLost:
            raise
        except SwarmError as error:
            return Attempt({}, error)
        return Attempt({})

    async def probe(self, placement: Placement, timeout_s: float) -> None:
        """Send one position round the ring as it is wired. Raises RemoteError, DeadlinePassed, FellowLost."""
        probe = link_pb2.Signal(probe=link_pb2.ProbeSignal(placement_id=placement.record.placement_id))
        first = self._registry.link_of(placement.record.stages[0].fellow_id)
        lap = await self._signals.send(first, probe, timeout_s)
        placement.probe_lap_ms = lap.probe.lap_ms

    async def _wire_stage(
        self,
        placement: Placement,
        epoch: int,
        index: int,
        routes: Sequence[Route],
        keys: RingKeys | None,
        keeping: Keeping | None,
    ) -> Failed | None:
        """Wire one stage. Returns why its link to the next one is not up; None when it is. Raises FellowLost."""
        record = placement.record
        following = (index + 1) % len(routes)
        direct = routes[index] is Route.DIRECT
        wire = link_pb2.WireSignal(
            placement_id=record.placement_id,
            epoch=epoch,
            route=route_to_proto(routes[index]),
            next_addresses=self._addresses_of(placement, following) if direct else (),
            previous_route=route_to_proto(routes[index - 1]),
            relay_address=self._config.relay_address,
            kv_tokens=record.kv_tokens,
            keys=keys,
            keep_sessions=keeping is not None and keeping.sessions,
            fresh_stages=keeping.fresh if keeping is not None else (),
            stage_index=index if keeping is not None else None,
        )
        link = self._registry.link_of(record.stages[index].fellow_id)
        try:
            answer = await self._signals.send(link, link_pb2.Signal(wire=wire), self._time_for(placement, keeping))
        except FellowLost:
            raise
        except SwarmError as error:
            self._drop_cover(record.stages[index].fellow_id, record.placement_id, index)
            return Failed(error.message, is_own=True)
        self._take_cover(record.stages[index].fellow_id, record.placement_id, index)
        if answer.wire.connected:
            return None
        return Failed(cut_words(answer.wire.failure) or "no reason given")

    def _time_for(self, placement: Placement, keeping: Keeping | None) -> float:
        """How long a stage has to join, in seconds: a ring that was up shows soon whether it comes up again."""
        longest_s = self._config.wire_timeout_s
        if keeping is None or placement.wired_in_s is None:
            return longest_s
        return min(longest_s, max(REWIRE_S, REWIRE_TIMES * placement.wired_in_s))

    def _take_cover(self, fellow_id: str, placement_id: str, index: int) -> None:
        """A fellow that took a WIRE holds the stage: what was a cover of it is one no more."""
        fellow = self._registry.get(fellow_id)
        cover = fellow.covers.pop((placement_id, index), None) if fellow is not None else None
        if fellow is not None and cover is not None and placement_id not in fellow.stages:
            fellow.stages[placement_id] = Held(cover.ring_addresses, cover.weight_bytes)

    def _drop_cover(self, fellow_id: str, placement_id: str, index: int) -> None:
        """A fellow took no WIRE: if the stage was a cover there, it is none, whatever its heartbeats go on saying."""
        fellow = self._registry.get(fellow_id)
        if fellow is not None and fellow.covers.pop((placement_id, index), None) is not None:
            fellow.covers_lost.add((placement_id, index))

    def _say_failed(self, placement: Placement, routes: Sequence[Route], attempt: Attempt) -> SwarmError:
        """The refusal, with both ends of every link that did not come up."""
        if attempt.lap_error is not None:
            return LinkBroken(f"the links are up, but no position went round the ring: {attempt.lap_error.message}")
        if not attempt.failed:
            return LinkBroken("a link broke again as soon as the ring was up")
        names = [self._registry.name_of(stage.fellow_id) for stage in placement.record.stages]
        links = []
        for index, failure in attempt.failed.items():
            following = (index + 1) % len(names)
            addresses = ", ".join(self._addresses_of(placement, following)) or "no address"
            way = f"at {addresses}" if routes[index] is Route.DIRECT else f"by {routes[index].value}"
            links.append(f"{names[index]} does not reach {names[following]} {way}: {failure.words}")
        return LoadFailed("; ".join(links), stage=min(attempt.failed), transport=placement.record.transport.value)
