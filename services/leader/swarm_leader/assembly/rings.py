"""What loads models over fellows, and wires, heals, empties and covers their rings, put together."""

from swarm_leader.assembly.shared import Shared
from swarm_leader.domain.covers.risk import FellowHealth
from swarm_leader.flows.board import Placement
from swarm_leader.flows.covering import Covering
from swarm_leader.flows.draining import Draining
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.healing_parts import Parts, make_healing
from swarm_leader.flows.link_keys import LinkKeys
from swarm_leader.flows.load import Loading
from swarm_leader.flows.registry import Fellow
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.routes_back import RoutesBack
from swarm_leader.flows.stage_load import StageLoading
from swarm_leader.flows.wire import Wiring
from swarm_leader.telemetry.watching import Watching


class Rings:
    """The parts. keys: secrets of links; watching: hears of incidents, and tells how fellows do."""

    def __init__(self, shared: Shared, keys: LinkKeys, watching: Watching) -> None:
        config, clock, tasks = shared.config, shared.clock, shared.tasks
        board, registry, signals = shared.board, shared.registry, shared.signals
        self._watching = watching
        self.ending = Ending(board, registry, signals, shared.replies, shared.gates, config.unload_timeout_s)
        self.wiring = Wiring(board, registry, signals, keys, config)
        stages = StageLoading(board, registry, signals, config)
        self.loading = Loading(shared.catalog, board, registry, stages, self.wiring, self.ending, tasks, clock, config)
        replacing = Replacing(shared.catalog, board, registry, stages, self.wiring, self.ending, config)
        parts = Parts(board, registry, signals, stages, self.wiring, self.ending, replacing)
        incidents = watching.telling(shared.store.incidents)
        self.healing = make_healing(parts, self.loading, tasks, clock, incidents, config)
        self.draining = Draining(board, registry, shared.store.fellows, replacing, self.healing, tasks, clock)
        watching.replacing.drain = self.draining.drain
        self.faults = Faults(board, registry, self.healing, self.ending, tasks, clock, config.recover_s)
        self.routes_back = RoutesBack(
            board, registry, signals, self._rewire, shared.has_replies, clock, config.route_retry_s
        )
        self.covering = Covering(board, registry, signals, replacing, clock, config, self._health_of)

    def _rewire(self, placement: Placement, why: str) -> None:
        self.faults.take_way(placement, why)

    def _health_of(self, fellow: Fellow) -> FellowHealth:
        node = self._watching.telemetry.node(fellow)
        grade, figures = node.grade.band if node.grade is not None else "", node.figures
        return FellowHealth(grade, figures.availability, figures.reconnects, figures.disk_free_bytes)
