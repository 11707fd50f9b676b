"""Keeps stages of ready models held a second time, where there is room for it. Gives way to loads; switches none in."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import structlog
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import FellowLost, Reason, SwarmError

from swarm_leader.config import LeaderConfig
from swarm_leader.domain.capabilities import FellowFacts
from swarm_leader.domain.covers.facts import CoverMode, CoverPlan, StageKey, StageToCover, Standby
from swarm_leader.domain.covers.plan import plan_covers
from swarm_leader.domain.covers.risk import FellowHealth, risk_of
from swarm_leader.domain.healing.refit import Refit, needed_bytes
from swarm_leader.domain.records import PlacementRecord, PlacementState, StageRecord, Transport
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.registry import Fellow, HeldCover, Registry, read_covers
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.room import cover_facts
from swarm_leader.flows.signals import Signals
from swarm_leader.flows.uncover import uncover
from swarm_leader.flows.words import load_to_proto

log = structlog.get_logger()
LOOK_S = 2.0
RETRY_MIN_S = 60.0  # after a cover that could not be made; doubles each time
RETRY_MAX_S = 3600.0
END_AGAIN_S = 10.0  # before the end of the same cover is asked for again
MIB = 2**20
_ON_THE_WAY = (PlacementState.LOADING, PlacementState.WIRING, PlacementState.RECOVERING)

HealthOf = Callable[[Fellow], FellowHealth]


@dataclass
class _Refusal:
    """A cover that a fellow could not make. until_s: when it is asked again, on the monotonic clock."""

    until_s: float
    wait_s: float


@dataclass(frozen=True)
class _Stage:
    """A stage that may be covered, with what its ring is made of."""

    record: PlacementRecord
    stage: StageRecord
    refit: Refit

    @property
    def key(self) -> StageKey:
        return self.record.placement_id, self.stage.stage_index


class Covering:
    """Plans covers, and has fellows make and end them. health_of: what is known of a machine's reliability."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        signals: Signals,
        replacing: Replacing,
        clock: Clock,
        config: LeaderConfig,
        health_of: HealthOf = lambda fellow: FellowHealth(),
    ) -> None:
        self._board = board
        self._registry = registry
        self._signals = signals
        self._replacing = replacing
        self._clock = clock
        self._config = config
        self._mode = CoverMode(config.covers)
        self._health_of = health_of
        self.look_s = LOOK_S  # between two looks of which the first changed nothing
        self._refits: dict[str, tuple[PlacementRecord, Refit | None]] = {}
        self._refusals: dict[tuple[str, StageKey, bool], _Refusal] = {}
        self._asked_s: dict[tuple[str, StageKey], float] = {}  # when the end of a cover was last asked for

    async def watch_forever(self) -> None:
        """Until cancelled. One cover is made at a time."""
        while True:
            if not await self.look_once():
                await asyncio.sleep(self.look_s)

    async def look_once(self) -> bool:
        """End what nobody needs, and make the first cover that is missing. Returns whether it changed anything.

        While anything loads or heals only covers of placements that are over are ended.
        """
        over = self._not_lately([(fellow, key) for fellow, key, _ in self._held() if not self._is_of_a_ring(key)])
        if over:
            await self._end(over)
        if self._is_busy():
            return False
        stages = {one.key: one for one in self._stages()}
        standbys = self._standbys(stages)
        plan = plan_covers([self._to_cover(one) for one in stages.values()], standbys, self._mode)
        surplus = [(fellow, key) for fellow, key, cover in self._held() if not _is_planned(plan, fellow, key, cover)]
        if surplus := self._not_lately(surplus):
            await self._end(surplus)
            return True
        for key, (fellow_id, is_hot) in plan.holders.items():
            fellow = self._registry.get(fellow_id)
            if fellow is not None and _is_missing(fellow, key, is_hot):
                await self._make(fellow, stages[key], is_hot)
                return True
        return False

    def _held(self) -> list[tuple[Fellow, StageKey, HeldCover]]:
        """Every cover on fellows that are there."""
        fellows = [one for one in self._registry.all() if self._registry.is_connected(one.fellow_id)]
        return [(fellow, key, cover) for fellow in fellows for key, cover in fellow.covers.items()]

    def _is_of_a_ring(self, key: StageKey) -> bool:
        placement = self._board.by_id(key[0])
        return placement is not None and placement.state.holds_memory and key[1] < len(placement.record.stages)

    def _is_busy(self) -> bool:
        """Whether a model loads or heals: it may need what covers hold, or become another ring."""
        return any(
            one.state in _ON_THE_WAY or one.is_healing or (one.task is not None and not one.task.done())
            for one in self._board.all()
        )

    def _stages(self) -> list[_Stage]:
        ready = [one for one in self._board.all() if one.state is PlacementState.READY]
        self._refits = {one.record.placement_id: self._refit(one) for one in ready}
        return [
            _Stage(record, stage, refit)
            for record, refit in self._refits.values()
            for stage in record.stages
            if refit is not None
        ]

    def _refit(self, placement: Placement) -> tuple[PlacementRecord, Refit | None]:
        """What a ring is made of; worked out once for each state of its record."""
        record = placement.record
        known = self._refits.get(record.placement_id)
        return known if known is not None and known[0] is record else (record, self._replacing.refit_of(record))

    def _to_cover(self, one: _Stage) -> StageToCover:
        fellow = self._registry.get(one.stage.fellow_id)
        health = self._health_of(fellow) if fellow is not None else FellowHealth()
        risk = risk_of(health, len(self._board.holding(one.stage.fellow_id)))
        return StageToCover(one.key, risk, needed_bytes(one.stage), one.stage.weight_bytes, self._pools_of(one.record))

    def _pools_of(self, record: PlacementRecord) -> frozenset[str]:
        """Of the machines that a ring is on; a placement itself has none."""
        fellows = (self._registry.get(stage.fellow_id) for stage in record.stages)
        return frozenset(fellow.record.pool for fellow in fellows if fellow is not None)

    def _standbys(self, stages: Mapping[StageKey, _Stage]) -> list[Standby]:
        """Every fellow that may hold covers, with which."""
        able = [
            fellow
            for fellow in self._registry.all()
            if self._registry.is_connected(fellow.fellow_id)
            and fellow.capabilities.cover
            and not fellow.record.draining
        ]
        return [self._standby(fellow, stages) for fellow in able]

    def _standby(self, fellow: Fellow, stages: Mapping[StageKey, _Stage]) -> Standby:
        placements = self._board.holding(fellow.fellow_id)
        facts = self._facts(fellow, placements)
        with_any_room = replace(
            facts, free_bytes=None, devices=tuple(replace(device, free_bytes=None) for device in facts.devices)
        )
        outside = {key: one for key, one in stages.items() if self._is_outside(fellow, one)}

        def possible(facts: FellowFacts, is_hot: bool) -> frozenset[StageKey]:
            return frozenset(
                key
                for key, one in outside.items()
                if not self._is_refused(fellow, key, is_hot)
                and not one.refit.find_obstacle(one.stage, facts, self._ring_without(one))
            )

        return Standby(
            fellow_id=fellow.fellow_id,
            free_bytes=facts.room_bytes,
            disk_free_bytes=self._health_of(fellow).disk_free_bytes,
            hot=possible(facts, is_hot=True),
            warm=possible(with_any_room, is_hot=False),
            covers={key: cover.is_hot for key, cover in fellow.covers.items()},
            stages_held=len(placements),
            pool=fellow.record.pool,
        )

    def _facts(self, fellow: Fellow, placements: list[Placement]) -> FellowFacts:
        return cover_facts(fellow, placements, self._config.cover_reserve_mb * MIB)

    def _ring_without(self, one: _Stage) -> list[FellowFacts]:
        """Those that hold the ring's other stages, as far as they are known."""
        others = (stage.fellow_id for stage in one.record.stages if stage is not one.stage)
        fellows = [fellow for fellow_id in others if (fellow := self._registry.get(fellow_id)) is not None]
        return [cover_facts(fellow, (), 0) for fellow in fellows]

    def _is_outside(self, fellow: Fellow, one: _Stage) -> bool:
        """Whether a fellow has no part in the ring, and may have one as far as proofs go."""
        in_ring = any(stage.fellow_id == fellow.fellow_id for stage in one.record.stages)
        still_holds = one.record.placement_id in fellow.stages
        return not in_ring and not still_holds and self._replacing.can_prove_itself(one.record, fellow.fellow_id)

    def _is_refused(self, fellow: Fellow, key: StageKey, is_hot: bool) -> bool:
        refusal = self._refusals.get((fellow.fellow_id, key, is_hot))
        return refusal is not None and self._clock.monotonic_s() < refusal.until_s

    async def _make(self, fellow: Fellow, one: _Stage, is_hot: bool) -> None:
        """Have a fellow hold a cover. A failure is kept, so that it is not asked the same at once again."""
        signal = self._signal(fellow, one, is_hot)
        kind = "hot" if is_hot else "warm"
        where = {"model": one.record.model_id, "stage": one.stage.stage_index, "fellow": fellow.name, "kind": kind}
        fellow.covers_made.add(one.key)
        try:
            link = self._registry.link_of(fellow.fellow_id)
            answer = await self._signals.send(link, signal, self._config.load_timeout_s)
        except FellowLost:
            return
        except SwarmError as error:
            if error.why is not Reason.CANCELLED:  # it gave way to a load
                self._note_refusal((fellow.fellow_id, one.key, is_hot))
            log.warning("no cover", why=error.message, **where)
            return
        finally:
            fellow.covers_made.discard(one.key)
        self._refusals.pop((fellow.fellow_id, one.key, is_hot), None)
        fellow.covers_lost.discard(one.key)
        fellow.covers |= read_covers([answer.cover.cover])
        self._board.notify(one.record.model_id)
        log.info("cover held", **where)

    def _signal(self, fellow: Fellow, one: _Stage, is_hot: bool) -> link_pb2.Signal:
        """The COVER: what a LOAD of that stage would say, in no epoch."""
        listens = len(one.record.stages) > 1 and one.record.transport is not Transport.TUNNEL
        by_device, stage = fellow.capabilities.serve_devices, one.stage
        if is_hot and by_device:
            stage = one.refit.refit(stage, self._facts(fellow, self._board.holding(fellow.fellow_id)))
        load = load_to_proto(one.record, stage, listens and fellow.capabilities.direct_link, by_device=by_device).load
        cover = link_pb2.CoverSignal(
            spec=load.spec,
            kind=link_pb2.COVER_KIND_HOT if is_hot else link_pb2.COVER_KIND_WARM,
            listen=load.listen,
            device_runs=load.device_runs if is_hot else (),
        )
        cover.spec.epoch = 0
        return link_pb2.Signal(cover=cover)

    def _note_refusal(self, asked: tuple[str, StageKey, bool]) -> None:
        before = self._refusals.get(asked)
        wait_s = min(2 * before.wait_s, RETRY_MAX_S) if before is not None else RETRY_MIN_S
        self._refusals[asked] = _Refusal(self._clock.monotonic_s() + wait_s, wait_s)
        living = {one.record.placement_id for one in self._board.all()}
        self._refusals = {key: one for key, one in self._refusals.items() if key[1][0] in living}

    def _not_lately(self, covers: list[tuple[Fellow, StageKey]]) -> list[tuple[Fellow, StageKey]]:
        """Those whose end was not asked for just now: a fellow that ends none, or says so, is not asked without end."""
        now_s = self._clock.monotonic_s()
        self._asked_s = {asked: at_s for asked, at_s in self._asked_s.items() if now_s - at_s < END_AGAIN_S}
        return [(fellow, key) for fellow, key in covers if (fellow.fellow_id, key) not in self._asked_s]

    async def _end(self, covers: list[tuple[Fellow, StageKey]]) -> None:
        now_s = self._clock.monotonic_s()
        self._asked_s |= {(fellow.fellow_id, key): now_s for fellow, key in covers}
        registry, signals, timeout_s = self._registry, self._signals, self._config.unload_timeout_s
        await asyncio.gather(*(uncover(registry, signals, fellow, key, timeout_s) for fellow, key in covers))
        for placement in self._board.all():
            if any(key[0] == placement.record.placement_id for _, key in covers):
                self._board.notify(placement.model_id)


def _is_planned(plan: CoverPlan, fellow: Fellow, key: StageKey, cover: HeldCover) -> bool:
    """Whether a cover that is held stays: a warm one that shall be hot does."""
    holder = plan.holders.get(key)
    return holder is not None and holder[0] == fellow.fellow_id and (holder[1] or not cover.is_hot)


def _is_missing(fellow: Fellow, key: StageKey, is_hot: bool) -> bool:
    held = fellow.covers.get(key)
    return held is None or (is_hot and not held.is_hot)
