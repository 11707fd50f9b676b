"""Puts healing together. Heals nothing itself."""

from dataclasses import dataclass

from swarm_core.clock import Clock

from swarm_leader.config import LeaderConfig
from swarm_leader.domain.ports import IncidentStore
from swarm_leader.flows.board import Board
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.examining import Examining
from swarm_leader.flows.healing import Healing, HealLimits
from swarm_leader.flows.healing_case import Incidents
from swarm_leader.flows.load import Loading
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replacing import Replacing
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
    return Healing(
        parts.board,
        parts.registry,
        loading,
        parts.stages,
        parts.wiring,
        parts.ending,
        tasks,
        clock,
        Examining(parts.registry, parts.signals),
        parts.replacing,
        Incidents(store, clock),
        HealLimits(config.heal_wait_s),
    )
