"""Puts healing together. Heals nothing itself."""

from dataclasses import dataclass

from swarm_core.clock import Clock

from swarm_leader.config import LeaderConfig
from swarm_leader.domain.healing.pace import HealLimits
from swarm_leader.domain.ports import IncidentStore
from swarm_leader.flows.arrivals import Arrivals
from swarm_leader.flows.board import Board
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.examining import Examining
from swarm_leader.flows.giving_up import GivingUp
from swarm_leader.flows.handing_over import HandingOver
from swarm_leader.flows.healing import Healing
from swarm_leader.flows.healing_course import HealingCourse
from swarm_leader.flows.incidents import Incidents
from swarm_leader.flows.load import Loading
from swarm_leader.flows.loading_anew import LoadingAnew
from swarm_leader.flows.lost_stages import LostStages
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.ring_up import RingUp
from swarm_leader.flows.signals import Signals
from swarm_leader.flows.stage_load import StageLoading
from swarm_leader.flows.tasks import TaskSet
from swarm_leader.flows.wire import Wiring


@dataclass(frozen=True)
class Parts:
    """What loads and wires rings."""

    board: Board
    registry: Registry
    signals: Signals
    stages: StageLoading
    wiring: Wiring
    ending: Ending
    replacing: Replacing


def make_healing(
    parts: Parts, loading: Loading, tasks: TaskSet, clock: Clock, store: IncidentStore, config: LeaderConfig
) -> Healing:
    """As configured."""
    board, registry, ending = parts.board, parts.registry, parts.ending
    limits, incidents = HealLimits(config.heal_wait_s), Incidents(store, clock)
    giving_up = GivingUp(board, registry, ending, incidents, clock)
    lost_stages = LostStages(board, registry, parts.replacing, ending, tasks, incidents, clock, limits)
    handing_over = HandingOver(board, registry, parts.replacing, ending, incidents, tasks)
    arrivals = Arrivals(registry, parts.replacing, handing_over, ending, incidents, tasks)
    ring_up = RingUp(
        board, registry, parts.stages, parts.wiring, loading, lost_stages, arrivals, incidents, clock, limits
    )
    course = HealingCourse(
        board,
        Examining(registry, parts.signals),
        lost_stages,
        arrivals,
        ring_up,
        LoadingAnew(board, registry, loading, ending, incidents),
        giving_up,
        incidents,
        limits,
    )
    healing = Healing(board, course, handing_over, giving_up, incidents, tasks, clock)
    loading.when_lost = healing.take_lost_load
    return healing
