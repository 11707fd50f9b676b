"""Loading a model: plan, record, load every stage, wire, probe, ready. Any failure gives all memory back."""

import asyncio
import uuid
from collections.abc import Callable
from dataclasses import replace

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import (
    Conflict,
    FellowLost,
    LinkBroken,
    LoadFailed,
    ModelNotReady,
    Reason,
    StaleEpoch,
    SwarmError,
)

from swarm_leader.config import LeaderConfig
from swarm_leader.domain import ledger as rules
from swarm_leader.domain.planning.plan import Plan, PlanRequest
from swarm_leader.domain.planning.planner import plan
from swarm_leader.domain.ports import Catalog
from swarm_leader.domain.records import PlacementRecord, PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.room import fleet_facts
from swarm_leader.flows.stage_load import StageLoading
from swarm_leader.flows.tasks import TaskSet, gather_all
from swarm_leader.flows.wire import Wiring
from swarm_leader.flows.wishes import ModelWish, find_adapters, resolve_model

log = structlog.get_logger()
_LOST = (Reason.FELLOW_LOST, Reason.STAGE_FAILED)  # what another fellow, or another try, may not meet


class Loading:
    """Loads models."""

    def __init__(
        self,
        catalog: Catalog,
        board: Board,
        registry: Registry,
        stages: StageLoading,
        wiring: Wiring,
        ending: Ending,
        tasks: TaskSet,
        clock: Clock,
        config: LeaderConfig,
        new_id: Callable[[], str] = lambda: uuid.uuid4().hex,
    ) -> None:
        self._catalog = catalog
        self._board = board
        self._registry = registry
        self._stages = stages
        self._wiring = wiring
        self._ending = ending
        self._tasks = tasks
        self._clock = clock
        self._config = config
        self._new_id = new_id
        self.when_lost: Callable[[Placement, SwarmError], None] | None = None  # a load failed for lack of a fellow
        self._planning = asyncio.Lock()  # from a plan to its record: the next plan must see what this one takes

    async def plan(self, model_id: str, request: PlanRequest) -> Plan:
        """What `load` would do now; nothing is stored.

        Raises ModelNotFound, ServableCorrupt, BadRequest (adapters), FellowNotFound, FellowLost, CapabilityMissing (a
        fellow that cannot prove itself, where that is asked for), and what the planner raises.
        """
        await asyncio.to_thread(self._catalog.refresh)
        return self._plan(resolve_model(self._catalog, model_id, request), request)

    def _plan(self, wish: ModelWish, request: PlanRequest) -> Plan:
        """A plan over the fellows as they are now."""
        everyone, named = fleet_facts(self._registry, self._board, wish.model_id), self._name_fellows(request)
        facts = [one for one in everyone if not self._registry.is_draining(one.fellow_id)]
        asked = replace(named, quantization=request.quantization or wish.quantization)
        planned = plan(wish.weights, facts, asked, self._config.serve_defaults, wish.adapters)
        self._wiring.check([stage.fellow_id for stage in planned.stages])
        return replace(planned, weights_model_id=wish.weights_model_id)

    async def load(
        self, model_id: str, request: PlanRequest, is_waking: bool = False, instead_of: Placement | None = None
    ) -> Placement:
        """Plan, record and start a load; the load goes on after this returns, and when the caller is cancelled.

        A model that is loaded or loading is answered with what it has, when nothing else is asked for.
        instead_of: the ended placement that this load brings back; not when it was unloaded or replaced meanwhile.
        Raises Conflict when something else is asked for, ModelNotReady when there is nothing to bring back, and what
        `plan` raises; then nothing was stored or sent.
        """
        return await self._tasks.complete(self._load(model_id, request, is_waking, instead_of), f"plan {model_id}")

    async def _load(
        self, model_id: str, request: PlanRequest, is_waking: bool, instead_of: Placement | None
    ) -> Placement:
        if self._board.get(model_id) is None:
            await asyncio.to_thread(self._catalog.refresh)
            self._catalog.get(model_id)  # before the lock: names that mean nothing leave nothing behind
        async with self._board.lock(model_id):
            current = self._board.get(model_id)
            if current is not None and current.state.holds_memory:
                if request.adapters:  # they may be newer than what the catalog shows
                    await asyncio.to_thread(self._catalog.refresh)
                wish = resolve_model(self._catalog, model_id, self._name_fellows(request))
                differences = rules.find_differences(current.record, wish.request)
                if not differences:
                    return current
                asked = "; ".join(differences)
                raise Conflict(
                    f"{model_id} is {current.state.value} {rules.say_held(current.record)}; asked for: {asked}; unload "
                    "it to load it otherwise",
                    state=current.state.value,
                    asked=asked,
                )
            if instead_of is not None and (current is not instead_of or current.state is PlacementState.UNLOADED):
                raise ModelNotReady(f"{model_id} was unloaded meanwhile", state=self._board.state_of(model_id))
            async with self._planning:
                await asyncio.to_thread(self._catalog.refresh)
                wish = resolve_model(self._catalog, model_id, request)
                planned = self._plan(wish, request)
                record = rules.begin(
                    planned,
                    model_id,
                    wish.weights_sha256,
                    self._new_id(),
                    self._clock.unix_s(),
                    await self._board.next_epoch(model_id),
                )
                placement = await self._board.begin(record, f"loading; stages: {len(record.stages)}")
            placement.is_waking, placement.forecast = is_waking, planned.forecast
            placement.is_healing = instead_of is not None and instead_of.is_healing
            placement.task = self._tasks.start(self._run(placement), f"load {model_id}")
            return placement

    async def wake(self, placement: Placement) -> Placement:
        """Load an idle model again as it was: on the same fellows while they can, else on others.

        Adapters that left the catalog meanwhile are left out: the others and the base are not to end with them.
        """
        record = placement.record
        again = await self.ask_again(record)
        same = replace(again, fellow_ids=tuple(stage.fellow_id for stage in record.stages))
        try:
            return await self.load(record.model_id, same, is_waking=True, instead_of=placement)
        except SwarmError as error:
            current = self._board.get(record.model_id)
            if current is not placement or current.state is PlacementState.UNLOADED:
                return current or placement  # somebody else loads it already, or unloaded it
            log.info("an idle model moves", model=record.model_id, why=error.message)
            return await self.load(record.model_id, again, is_waking=True, instead_of=placement)

    async def ask_again(self, record: PlacementRecord) -> PlanRequest:
        """The request that gives a placement once more, on fellows of the planner's choice, without lost adapters."""
        again = rules.ask_again(record)
        if again.adapters:  # else who came first is first to go on
            await asyncio.to_thread(self._catalog.refresh)
            again = replace(again, adapters=find_adapters(self._catalog, record.model_id, again.adapters))
        return again

    async def unload(self, model_id: str) -> Placement | None:
        """End serving a model and give its memory back; None when it was never loaded.

        It goes on when the caller is cancelled. A load that is being planned is waited for, and then ended.
        Raises ModelNotFound.
        """
        if self._board.get(model_id) is None:
            self._catalog.get(model_id)  # before the lock: names that mean nothing leave nothing behind
        return await self._tasks.complete(self._unload(model_id), f"unload {model_id}")

    async def _unload(self, model_id: str) -> Placement | None:
        async with self._board.lock(model_id):
            placement = self._board.get(model_id)
            if placement is None:
                return None
            why = ModelNotReady(f"{model_id} was unloaded on request", state=PlacementState.UNLOADED.value)
            if placement.state.holds_memory:
                await self._ending.end(placement, PlacementState.UNLOADED, why)
            if placement.state is not PlacementState.UNLOADED:
                unloaded = replace(placement.record, state=PlacementState.UNLOADED, reason=why.message)
                await self._board.save(placement, lambda record: unloaded, "unloaded on request")
            return placement

    async def _run(self, placement: Placement) -> None:
        """The load itself, from the first signal to ready or failed."""
        try:
            await gather_all(self._stages.load(placement, stage) for stage in placement.record.stages)
            await self._stages.fit_kv(placement)
            await self._wiring.wire(placement, placement.record.epoch)
            await self.be_ready(placement)
        except StaleEpoch:
            return  # ended meanwhile; whoever ended it gave the memory back
        except SwarmError as error:
            await self._fail(placement, error)
        except Exception as error:
            log.error("load failed", model=placement.model_id, exc_info=error)
            await self._fail(placement, LoadFailed("internal error; see the leader's log"))

    async def _fail(self, placement: Placement, error: SwarmError) -> None:
        """Give the memory back. Whoever waits for a healing goes on waiting: it decides what is tried next."""
        is_lost = error.why in _LOST and self.when_lost is not None and not placement.is_healing
        placement.is_healing = placement.is_healing or is_lost
        ended = await self._ending.end(placement, PlacementState.FAILED, error, is_final=not placement.is_healing)
        if ended and is_lost and self.when_lost is not None:
            self.when_lost(placement, error)

    async def be_ready(self, placement: Placement) -> None:
        """A lap went round: the model serves. Raises StaleEpoch, LinkBroken (a link broke at that very moment)."""
        await self._board.save(
            placement, lambda record: replace(record, state=PlacementState.READY, reason=""), "ready"
        )
        if placement.broken_epoch >= placement.record.epoch:
            raise LinkBroken("a link broke as soon as the ring was up")
        log.info("model ready", model=placement.model_id, epoch=placement.record.epoch, lap_ms=placement.probe_lap_ms)

    def _name_fellows(self, request: PlanRequest) -> PlanRequest:
        """Names of fellows as ids. Raises FellowNotFound, FellowLost (known, not connected), Conflict (drained)."""
        fellow_ids = []
        for id_or_name in request.fellow_ids:
            fellow = self._registry.find(id_or_name)
            if not self._registry.is_connected(fellow.fellow_id):
                raise FellowLost(
                    f"fellow {fellow.name} is not connected ({self._registry.state(fellow).value})", fellow=fellow.name
                )
            if fellow.record.draining:
                raise Conflict(
                    f"fellow {fellow.name} is being drained; it takes stages again after: swarm fellows undrain "
                    f"{fellow.name}",
                    fellow=fellow.name,
                )
            fellow_ids.append(fellow.fellow_id)
        return replace(request, fellow_ids=tuple(fellow_ids))
