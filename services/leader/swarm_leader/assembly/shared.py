"""What all parts of a leader share: models on disk, fellows, placements, replies and who waits for one."""

from swarm_core.clock import Clock

from swarm_leader.catalog.disk import DiskCatalog
from swarm_leader.config import LeaderConfig
from swarm_leader.domain.leases import Leases
from swarm_leader.flows.board import Board
from swarm_leader.flows.gate import Gates
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.replies import Replies, Reply
from swarm_leader.flows.signals import Signals
from swarm_leader.flows.tasks import TaskSet
from swarm_leader.store import Store


class Shared:
    """The parts, over an open store."""

    def __init__(self, config: LeaderConfig, store: Store, clock: Clock) -> None:
        self.config = config
        self.store = store
        self.clock = clock
        self.tasks = TaskSet()
        self.catalog = DiskCatalog(config.models_root)
        self.registry = Registry(store.fellows, Leases(clock, config.lease_s), clock)
        self.board = Board(store.ledger)
        self.signals = Signals()
        self.replies = Replies(config.event_queue_max, config.hold_s, self._may_return, self._makes)
        self.gates = Gates(config.queue_max, clock)

    def is_loaded(self, model_id: str) -> bool:
        """Whether a placement that holds memory reads this model."""
        return any(one.reads(model_id) for one in self.board.all() if one.state.holds_memory)

    def has_replies(self, model_id: str) -> bool:
        """Whether replies of this model run."""
        return self.gates.of(model_id).running > 0

    def _may_return(self, fellow_id: str, reply: Reply) -> bool:
        """Whether a reply may go on that waits for its fellow's link: the fellow may come back, and its ring stands."""
        placement = self.board.by_id(reply.placement_id)
        stands = placement is not None and placement.record.epoch == reply.epoch and placement.state.holds_memory
        return stands and self.registry.leases.is_running(fellow_id)

    def _makes(self, fellow_id: str, placement_id: str) -> bool:
        """Whether a fellow makes the replies of a placement: it holds the first stage."""
        placement = self.board.by_id(placement_id)
        return placement is not None and placement.record.stages[0].fellow_id == fellow_id
