"""What a stage's death, a broken link, an eviction or a lost fellow means for the models served. Decides per event."""

import asyncio
from dataclasses import replace

import structlog
from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import FellowLost, LinkBroken, LoadFailed, ModelNotReady, StageFailed, StaleEpoch, SwarmError

from swarm_leader.domain import ledger as rules
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.load import Loading
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.tasks import TaskSet
from swarm_leader.flows.wire import Wiring

log = structlog.get_logger()
REWIRE_WAITS_S = (0.0, 0.5, 1.0)  # before each try; a ring that stays down for all of them is given up
_KIND_WORDS = {
    link_pb2.STAGE_EVENT_KIND_CRASHED: "crashed",
    link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED: "was unloaded for idleness",
    link_pb2.STAGE_EVENT_KIND_EVICTED: "was evicted",
}
_WAITING = (PlacementState.RECOVERING, PlacementState.WIRING)  # without a task, these wait for fellows
# A stage that ends for idleness breaks its neighbours' links, and they may be heard before its own fellow.
_IDLING = (PlacementState.READY, PlacementState.WIRING)
UNWANTED_AGAIN_S = 10.0  # how long a fellow has to end a stage it was told to end before it is told again


class Faults:
    """Reacts to what fellows report by themselves, and to their absence."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        loading: Loading,
        wiring: Wiring,
        ending: Ending,
        tasks: TaskSet,
        clock: Clock,
        recover_s: float,
    ) -> None:
        self._board = board
        self._registry = registry
        self._loading = loading
        self._wiring = wiring
        self._ending = ending
        self._tasks = tasks
        self._clock = clock
        self._recover_s = recover_s

    def take_stage_event(self, fellow: Fellow, event: link_pb2.StageEvent) -> None:
        """A stage ended or broke by itself. Events of a placement or an epoch that is over have no effect."""
        spec = event.spec
        placement = self._board.by_id(spec.placement_id)
        broke = event.kind == link_pb2.STAGE_EVENT_KIND_LINK_BROKEN
        if not broke:
            fellow.drop_stage(spec.placement_id)
        if placement is None or not self._board.is_wanted(spec.placement_id, fellow.fellow_id, spec.stage_index):
            return
        where = f"stage {spec.stage_index} on {fellow.name}"
        log.warning("stage event", model=spec.model_id, where=where, kind=event.kind, message=event.message)
        if broke:
            if spec.epoch >= placement.record.epoch:
                placement.broken_epoch = max(placement.broken_epoch, spec.epoch)
                self._start_rewire(placement, f"{where} lost a link: {event.message}")
            return
        facts = {"fellow": fellow.name, "stage": spec.stage_index}
        words = f"{where} {_KIND_WORDS.get(event.kind, 'ended')}: {event.message}"
        if event.kind == link_pb2.STAGE_EVENT_KIND_EVICTED:
            self._end(placement, PlacementState.UNLOADED, ModelNotReady(words, **facts), fellow.fellow_id)
        elif event.kind == link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED and placement.state in _IDLING:
            self._end(placement, PlacementState.IDLE, ModelNotReady(words, **facts), fellow.fellow_id)
        else:
            self._end(placement, PlacementState.FAILED, StageFailed(words, **facts), fellow.fellow_id)

    def take_missing(self, fellow: Fellow, placement_ids: list[str]) -> None:
        """A fellow no longer reports stages it held: they died unseen."""
        for placement_id in placement_ids:
            placement = self._board.by_id(placement_id)
            if placement is None or fellow.fellow_id not in _holders(placement) or not placement.state.holds_memory:
                continue
            why = StageFailed(
                f"fellow {fellow.name} no longer holds its stage of {placement.model_id}", fellow=fellow.name
            )
            self._end(placement, PlacementState.FAILED, why, fellow.fellow_id)

    def take_statuses(self, fellow: Fellow, statuses: list[stage_pb2.StageStatus]) -> None:
        """Have a fellow end every stage it reports and should not hold."""
        now_s = self._clock.monotonic_s()
        reported = {status.spec.placement_id for status in statuses}
        fellow.unwanted_at_s = {key: at_s for key, at_s in fellow.unwanted_at_s.items() if key in reported}
        for status in statuses:
            placement_id = status.spec.placement_id
            if self._board.is_wanted(placement_id, fellow.fellow_id, status.spec.stage_index):
                continue
            told_s = fellow.unwanted_at_s.get(placement_id)
            if told_s is None or now_s - told_s >= UNWANTED_AGAIN_S:
                fellow.unwanted_at_s[placement_id] = now_s
                self._tasks.start(self._ending.unload_stage(fellow.fellow_id, placement_id), "unload an unwanted stage")

    def take_return(self, fellow: Fellow) -> None:
        """A fellow registered, with what it holds: re-adopt what is there, give up what is not."""
        for placement in self._board.holding(fellow.fellow_id):
            if placement.state is PlacementState.LOADING:
                continue  # its LOAD failed with the old link; the load's own task gives the rest back
            held = fellow.stages.get(placement.record.placement_id)
            if held is None:
                why = StageFailed(
                    f"fellow {fellow.name} came back without its stage of {placement.model_id}", fellow=fellow.name
                )
                self._end(placement, PlacementState.FAILED, why, fellow.fellow_id)
                continue
            for stage in placement.record.stages:
                if stage.fellow_id == fellow.fellow_id:
                    placement.stages[stage.stage_index].ring_addresses = held.ring_addresses
            if placement.state in _WAITING:
                self._start_rewire(placement, "every fellow came back")
            elif held.status is not None and held.status.spec.epoch != placement.record.epoch:
                self._start_rewire(placement, f"fellow {fellow.name} came back at an older epoch")

    def take_lost(self, fellow_id: str) -> None:
        """A fellow's lease ran out: what it held is lost."""
        name = self._registry.name_of(fellow_id)
        for placement in self._board.holding(fellow_id):
            if placement.state is PlacementState.RECOVERING:
                words = f"fellow {name} did not come back within {self._recover_s:g} s"
            else:
                words = f"fellow {name} was lost: it did not report for {self._registry.leases.lease_s:g} s"
            self._end(placement, PlacementState.FAILED, FellowLost(words, fellow=name), fellow_id)

    def take_leave(self, fellow: Fellow, words: str) -> None:
        """A fellow was released or deleted by a person: it holds nothing from now on."""
        for placement in self._board.holding(fellow.fellow_id):
            self._end(placement, PlacementState.FAILED, FellowLost(words, fellow=fellow.name), fellow.fellow_id)

    def take_stall(self, placement: Placement, epoch: int, why: str) -> None:
        """A reply begun at this epoch hangs though every link is up: wire the ring anew, and let the lap decide."""
        if placement.state is PlacementState.READY and placement.record.epoch == epoch:
            log.warning("stalled", model=placement.model_id, epoch=epoch, why=why)
            self._start_rewire(placement, why)

    def _all_back(self, placement: Placement) -> bool:
        """Whether every stage's fellow is connected and holds its stage."""
        placement_id = placement.record.placement_id
        for fellow_id in _holders(placement):
            fellow = self._registry.get(fellow_id)
            if fellow is None or not self._registry.is_connected(fellow_id) or placement_id not in fellow.stages:
                return False
        return True

    def _end(self, placement: Placement, state: PlacementState, why: SwarmError, lost_fellow_id: str) -> None:
        fix = _say_fix(placement) if state is PlacementState.FAILED else ""
        ending = self._ending.end(placement, state, why, lost_fellow_id, fix)
        self._tasks.start(ending, f"end {placement.model_id}")

    def _start_rewire(self, placement: Placement, why: str) -> None:
        """Bring the ring up again, unless something brings it up already, or a fellow of it is still away."""
        if placement.task is not None and not placement.task.done():
            return
        if placement.state is not PlacementState.READY and not (
            placement.state in _WAITING and self._all_back(placement)
        ):
            return
        placement.task = self._tasks.start(self._rewire(placement, why), f"rewire {placement.model_id}")

    async def _rewire(self, placement: Placement, why: str) -> None:
        """Move the ring to its next epoch, with a few tries; then ready, or failed.

        While a fellow's link is gone nothing is tried: it returns and this starts again, or its lease ends it all.
        """
        if not all(self._can_rewire(fellow_id) for fellow_id in _holders(placement)):
            await self._load_anew(placement, why)
            return
        error: SwarmError = LinkBroken(why)
        for wait_s in REWIRE_WAITS_S:
            await asyncio.sleep(wait_s)
            try:
                await self._wiring.wire(placement, placement.record.epoch + 1)
                await self._loading.be_ready(placement)
                return
            except StaleEpoch:
                return
            except FellowLost as failure:
                if not self._all_back(placement):
                    self._say_waiting(placement)
                    log.info("the ring waits for a fellow", model=placement.model_id, why=failure.message)
                    return
                error = failure
            except SwarmError as failure:
                error = failure
        words = f"the ring did not come up again after {len(REWIRE_WAITS_S)} tries ({why}): {error.message}"
        fix = _say_fix(placement)
        await self._ending.end(placement, PlacementState.FAILED, LoadFailed(words), fix=fix)

    def _say_waiting(self, placement: Placement) -> None:
        """Show whom a ring waits for. Not written: after a restart of the leader every ring waits anyway."""
        away = [fellow_id for fellow_id in _holders(placement) if not self._registry.is_connected(fellow_id)]
        if away and placement.state is PlacementState.WIRING and self._board.is_current(placement):
            names = " and ".join(self._registry.name_of(fellow_id) for fellow_id in away)
            plural = len(away) > 1
            reason = (
                f"waits for fellow{'s' if plural else ''} {names}, whose connection broke; "
                f"lost unless back within {self._registry.leases.lease_s:g} s"
            )
            self._board.show(placement, replace(placement.record, reason=reason))

    async def _load_anew(self, placement: Placement, why: str) -> None:
        """A fellow of the ring takes no new epoch (serve_rewire): end it and load it as it was."""
        record = placement.record
        again = rules.ask_again(record, _holders(placement))
        placement.task = None  # this task goes on after the placement's end
        await self._ending.end(placement, PlacementState.FAILED, LinkBroken(f"{why}; loading it anew"))
        try:
            await self._loading.load(record.model_id, again, instead_of=placement)
        except SwarmError as error:
            log.warning("could not load anew", model=record.model_id, why=error.message)

    def _can_rewire(self, fellow_id: str) -> bool:
        fellow = self._registry.get(fellow_id)
        return fellow is not None and (fellow.capabilities.serve_rewire or not self._registry.is_connected(fellow_id))


def _say_fix(placement: Placement) -> str:
    return f"load it again with: swarm model-load {placement.model_id}"


def _holders(placement: Placement) -> tuple[str, ...]:
    return tuple(stage.fellow_id for stage in placement.record.stages)
