"""Has a ring serve whose stages are all held: wired at its next epoch, unless it still stands. Moves no stage."""

import asyncio

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import FellowLost, NotEnoughMemory, StaleEpoch, SwarmError

from swarm_leader.domain.healing.pace import HealLimits, RewirePace
from swarm_leader.domain.healing.rewiring import AGAIN_S, Down, Tries, decide
from swarm_leader.domain.incidents import IncidentKind
from swarm_leader.domain.records import Route
from swarm_leader.flows.arrivals import Arrivals
from swarm_leader.flows.board import Board
from swarm_leader.flows.examining import are_connected, holders_of
from swarm_leader.flows.healing_case import Case, show
from swarm_leader.flows.incidents import Incidents
from swarm_leader.flows.load import Loading
from swarm_leader.flows.loading_anew import Anew
from swarm_leader.flows.lost_stages import MOVES_MAX, LostStages
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.stage_load import StageLoading
from swarm_leader.flows.wire import Keeping, RingDown, Wiring

log = structlog.get_logger()
PROBE_S = 3.0  # a ring that stood while the leader was away answers at once


class RingUp:
    """Brings rings up."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        stages: StageLoading,
        wiring: Wiring,
        loading: Loading,
        lost_stages: LostStages,
        arrivals: Arrivals,
        incidents: Incidents,
        clock: Clock,
        limits: HealLimits,
    ) -> None:
        self._board = board
        self._registry = registry
        self._stages = stages
        self._wiring = wiring
        self._loading = loading
        self._lost_stages = lost_stages
        self._arrivals = arrivals
        self._incidents = incidents
        self._clock = clock
        self._limits = limits
        self._pace = RewirePace()

    async def bring_up(self, case: Case) -> Anew | bool:
        """Have a ring serve. True: it does; False: look again. Raises StaleEpoch."""
        placement, known_faults = case.placement, case.faults
        try:
            await self._stages.fit_kv(placement)
            if not await self._still_stands(case):
                if not all(fellow.capabilities.serve_rewire for fellow in self._fellows(case)):
                    return Anew("a fellow of the ring takes no new epoch (serve_rewire)", is_same=True)
                ring_down = await self._wire(case)
                if ring_down is not None:
                    return await self._take_down(case, ring_down) or False
            await self._loading.be_ready(placement)
        except StaleEpoch:
            raise
        except NotEnoughMemory as failure:
            self._refuse_tight(case, failure)
            return False
        except SwarmError as failure:
            return await self._take_failure(case, failure) or False
        case.fresh.clear()
        case.tries = Tries()
        # One more, at that very moment? Links that its wiring tried before it fell back were of older epochs.
        return case.faults == known_faults and placement.broken_epoch < placement.record.epoch

    async def _wire(self, case: Case) -> RingDown | None:
        """Wire the next epoch, in good time after the last one. Raises what Wiring.try_to_wire raises."""
        if case.tries.count == 0:  # what follows within one case is paced by what came of it
            await asyncio.sleep(self._pace.wait_s(case.model_id, self._clock.monotonic_s()))
        record, now_s = case.placement.record, self._clock.monotonic_s()
        case.tries = case.tries.begin(case.complaints, holders_of(record), case.opened_at_s, now_s)
        case.complaints.clear()
        keeps_sessions = all(fellow.capabilities.serve_keep for fellow in self._fellows(case))
        if case.tries.count == 0:
            await self._incidents.note(case, "wiring", "every stage is held: the ring is wired anew")
        keeping = Keeping(keeps_sessions, tuple(sorted(case.fresh)))
        return await self._wiring.try_to_wire(case.placement, record.epoch + 1, keeping)

    async def _still_stands(self, case: Case) -> bool:
        """After a start of the leader: whether the ring went on by itself, as direct rings do."""
        placement = case.placement
        record = placement.record
        if case.kind is not IncidentKind.RESTART or case.fresh or case.complaints:
            return False
        if placement.broken_epoch >= record.epoch or any(stage.route is Route.RELAY for stage in record.stages):
            return False
        for stage in record.stages:
            status = self._registry.status_of(stage.fellow_id, record.placement_id)
            if status is None or status.spec.epoch != record.epoch:
                return False
        try:
            await self._wiring.probe(placement, PROBE_S)
        except SwarmError as error:
            log.info("the ring did not outlive the leader", model=case.model_id, why=error.message)
            return False
        return True

    async def _take_failure(self, case: Case, failure: SwarmError) -> Anew | None:
        """It could not be wired. A stage that is found lost is replaced; else this is tried a few times."""
        if isinstance(failure, FellowLost) and not are_connected(self._registry, case.placement.record):
            await self._incidents.note(case, "wiring", failure.message)
            await show(self._board, case, f"{case.fault}; it did not come up: {failure.message}")
            return None
        return await self._take_down(case, RingDown(Down(), failure))

    async def _take_down(self, case: Case, ring_down: RingDown) -> Anew | None:
        """It did not come up. None: look again, when what is next has been prepared."""
        await self._incidents.note(case, "wiring", ring_down.error.message)
        record, now_s, wait_s = case.placement.record, self._clock.monotonic_s(), self._limits.wait_s
        case.tries = case.tries.fail(ring_down.down, holders_of(record))
        cut_off = case.tries.cut_off(now_s, wait_s)
        choices = self._arrivals.choose(case, cut_off) if case.moves < MOVES_MAX else {}
        step = decide(case.tries, {*case.arrivals, *choices}, now_s, wait_s)
        if step.moves:
            await self._arrivals.begin(case, choices)
            await self._arrivals.wait(case, AGAIN_S)
            return None
        if step.again_in_s is not None:
            if ring_down.down.is_relay_away:
                await show(self._board, case, f"{case.fault}; waits for the relay, which nobody reaches")
            await asyncio.sleep(step.again_in_s)
            return None
        case.is_line_down = True
        return Anew(
            f"the ring did not come up again after {case.tries.count} tries: {ring_down.error.message}",
            fewest=True,
            without=frozenset(record.stages[index].fellow_id for index in cut_off),
        )

    def _refuse_tight(self, case: Case, failure: NotEnoughMemory) -> None:
        """A stage that was brought to a fellow leaves no room for a conversation there: it must go elsewhere."""
        needed, stages = case.placement.record.context_tokens, case.placement.stages
        for index in sorted(case.fresh):
            measured = stages[index].kv_tokens_measured
            if measured is not None and measured < needed:
                self._lost_stages.refuse(case, index)
        log.warning("no room beside a stage", model=case.model_id, why=failure.message)

    def _fellows(self, case: Case) -> list[Fellow]:
        """Those of the ring that are known."""
        found = (self._registry.get(stage.fellow_id) for stage in case.placement.record.stages)
        return [fellow for fellow in found if fellow is not None]
