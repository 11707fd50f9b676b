"""What a stage's death, a broken link, an eviction or a lost fellow means for the models served. Heals nothing."""

import structlog
from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import Clock
from swarm_core.errors import DeadlinePassed, FellowLost, LinkBroken, ModelNotReady, StageFailed, SwarmError

from swarm_leader.domain.incidents import IncidentKind
from swarm_leader.domain.records import PlacementState
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.healing import Healing
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.tasks import TaskSet

log = structlog.get_logger()
_KIND_WORDS = {
    link_pb2.STAGE_EVENT_KIND_CRASHED: "crashed",
    link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED: "was unloaded for idleness",
    link_pb2.STAGE_EVENT_KIND_EVICTED: "was evicted",
}
# A stage that ends for idleness breaks its neighbours' links, and they may be heard before its own fellow.
_IDLING = (PlacementState.READY, PlacementState.WIRING, PlacementState.RECOVERING)
UNWANTED_AGAIN_S = 10.0  # how long a fellow has to end a stage it was told to end before it is told again


class Faults:
    """Reacts to what fellows report by themselves, and to their absence."""

    def __init__(
        self,
        board: Board,
        registry: Registry,
        healing: Healing,
        ending: Ending,
        tasks: TaskSet,
        clock: Clock,
        recover_s: float,
    ) -> None:
        self._board = board
        self._registry = registry
        self._healing = healing
        self._ending = ending
        self._tasks = tasks
        self._clock = clock
        self._recover_s = recover_s

    def take_stage_event(self, fellow: Fellow, event: link_pb2.StageEvent) -> None:
        """A stage ended or broke by itself. Events of a placement or an epoch that is over have no effect."""
        spec = event.spec
        placement = self._board.by_id(spec.placement_id)
        is_owner = self._board.is_wanted(spec.placement_id, fellow.fellow_id, spec.stage_index)
        broke = event.kind == link_pb2.STAGE_EVENT_KIND_LINK_BROKEN
        if placement is not None and is_owner and spec.epoch < placement.stages[spec.stage_index].loaded_epoch:
            return  # of a process before the one that it holds now
        if not broke:
            fellow.drop_stage(spec.placement_id)
        if placement is None or not is_owner:
            return
        where = f"stage {spec.stage_index} on {fellow.name}"
        log.warning("stage event", model=spec.model_id, where=where, kind=event.kind, message=event.message)
        if broke:
            self._take_broken_link(placement, fellow.name, event)
            return
        facts = {"fellow": fellow.name, "stage": spec.stage_index}
        words = f"{where} {_KIND_WORDS.get(event.kind, 'ended')}: {event.message}"
        if event.kind == link_pb2.STAGE_EVENT_KIND_EVICTED:
            self._end(placement, PlacementState.UNLOADED, ModelNotReady(words, **facts), fellow.fellow_id)
        elif event.kind == link_pb2.STAGE_EVENT_KIND_IDLE_UNLOADED and placement.state in _IDLING:
            self._end(placement, PlacementState.IDLE, ModelNotReady(words, **facts), fellow.fellow_id)
        else:
            self._healing.report(placement, IncidentKind.CRASH, StageFailed(words, **facts))

    def take_missing(self, fellow: Fellow, placement_ids: list[str]) -> None:
        """A fellow no longer reports stages it held: they died unseen."""
        for placement_id in placement_ids:
            placement = self._board.by_id(placement_id)
            if placement is None or fellow.fellow_id not in _holders(placement) or not placement.state.holds_memory:
                continue
            why = StageFailed(
                f"fellow {fellow.name} no longer holds its stage of {placement.model_id}", fellow=fellow.name
            )
            self._healing.report(placement, IncidentKind.CRASH, why)

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
        """A fellow registered, with what it holds: re-adopt what is there, bring back what is not."""
        for placement in self._board.holding(fellow.fellow_id):
            if placement.state is PlacementState.LOADING:
                continue  # its LOAD failed with the old link; the load's own task gives the rest back
            held = fellow.stages.get(placement.record.placement_id)
            if held is None:
                why = StageFailed(
                    f"fellow {fellow.name} came back without its stage of {placement.model_id}", fellow=fellow.name
                )
                self._healing.report(placement, IncidentKind.CRASH, why)
                continue
            for stage in placement.record.stages:
                if stage.fellow_id == fellow.fellow_id:
                    placement.stages[stage.stage_index].ring_addresses = held.ring_addresses
            if held.status is not None and held.status.spec.epoch != placement.record.epoch:
                words = f"fellow {fellow.name} came back at an older epoch"
                self._healing.report(placement, IncidentKind.LINK, LinkBroken(words, fellow=fellow.name))
        self._healing.nudge()

    def take_lost(self, fellow_id: str) -> None:
        """A fellow's lease ran out: what it held is lost."""
        name = self._registry.name_of(fellow_id)
        fellow = self._registry.get(fellow_id)
        seen_at_s = fellow.heartbeat_at_s if fellow is not None else None
        for placement in self._board.holding(fellow_id):
            if fellow is None or fellow.link is None:  # since the leader started
                words = f"fellow {name} did not come back within {self._recover_s:g} s"
            else:
                words = f"fellow {name} was lost: it did not report for {self._registry.leases.lease_s:g} s"
            why = FellowLost(words, fellow=name)
            self._healing.report(placement, IncidentKind.LOST, why, seen_at_s=seen_at_s)
        self._healing.nudge()

    def take_leave(self, fellow: Fellow, words: str) -> None:
        """A fellow was released by a person: it holds nothing from now on."""
        for placement in self._board.holding(fellow.fellow_id):
            self._end(placement, PlacementState.FAILED, FellowLost(words, fellow=fellow.name), fellow.fellow_id)

    def take_deleted(self, fellow: Fellow) -> None:
        """A person has a fellow forgotten: what it held is somebody else's to hold."""
        why = FellowLost(f"fellow {fellow.name} was deleted on request", fellow=fellow.name)
        for placement_id in list(fellow.stages):
            fellow.drop_stage(placement_id)
        for placement in self._board.holding(fellow.fellow_id):
            self._healing.report(placement, IncidentKind.LOST, why, seen_at_s=fellow.heartbeat_at_s)
        self._healing.nudge()

    def take_link_end(self, fellow: Fellow) -> None:
        """A fellow's control link broke. Its lease runs on; where a neighbour lost it too, that is enough."""
        self._healing.nudge()

    def take_stall(self, placement: Placement, epoch: int, why: str) -> None:
        """A reply begun at this epoch hangs though every link is up: wire the ring anew, and let the lap decide."""
        if placement.state is PlacementState.READY and placement.record.epoch == epoch:
            log.warning("stalled", model=placement.model_id, epoch=epoch, why=why)
            self._healing.report(placement, IncidentKind.STALL, DeadlinePassed(why))

    def take_way(self, placement: Placement, why: str) -> None:
        """Nothing broke: stages that were relayed reach each other directly, and the ring is wired for it."""
        if placement.state is PlacementState.READY:
            self._healing.report(placement, IncidentKind.WAY, LinkBroken(why))

    def _take_broken_link(self, placement: Placement, name: str, event: link_pb2.StageEvent) -> None:
        """A neighbour's word on a link: of the epoch that is now, or it is no news. One that never was is a lie."""
        if event.spec.epoch != placement.record.epoch:
            return
        placement.broken_epoch = placement.record.epoch
        peer = event.peer_stage if event.HasField("peer_stage") else None
        if peer is not None and peer >= len(placement.record.stages):
            peer = None
        index = event.spec.stage_index
        why = LinkBroken(f"stage {index} on {name} lost a link: {event.message}", fellow=name, stage=index)
        self._healing.report(placement, IncidentKind.LINK, why, complaint=peer)

    def _end(self, placement: Placement, state: PlacementState, why: SwarmError, lost_fellow_id: str) -> None:
        fix = f"load it again with: swarm model-load {placement.model_id}" if state is PlacementState.FAILED else ""
        ending = self._ending.end(placement, state, why, lost_fellow_id, fix)
        self._tasks.start(ending, f"end {placement.model_id}")


def _holders(placement: Placement) -> tuple[str, ...]:
    return tuple(stage.fellow_id for stage in placement.record.stages)
