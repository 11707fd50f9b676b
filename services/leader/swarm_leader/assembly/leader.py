"""Every part of one leader: put together over an open store, started, and ended in order. Knows no server."""

import asyncio
import os

from swarm_core.clock import Clock
from swarm_core.errors import Unavailable

from swarm_leader.assembly.relaying import make_relay
from swarm_leader.assembly.rings import Rings
from swarm_leader.assembly.shared import Shared
from swarm_leader.config import LeaderConfig
from swarm_leader.flows.admission import Admissions
from swarm_leader.flows.doors import Doors
from swarm_leader.flows.health import Health
from swarm_leader.flows.join import Joining
from swarm_leader.flows.link_keys import LinkKeys
from swarm_leader.flows.measure import Measuring
from swarm_leader.flows.recover import recover
from swarm_leader.flows.sweep import sweep_forever
from swarm_leader.flows.tokens import keep_tokens
from swarm_leader.metrics.replies import ReplyMetrics
from swarm_leader.metrics.state import State, make_registry, read_leader
from swarm_leader.relay.ticket import Tickets
from swarm_leader.rpc.access import Access
from swarm_leader.store import Store
from swarm_leader.store.admin_file import DiskAdminFile
from swarm_leader.telemetry.watching import Watching
from swarm_leader.trust.identity import LeaderIdentity, names_of_host


class Leader:
    """The parts."""

    def __init__(
        self, config: LeaderConfig, store: Store, clock: Clock, identity: LeaderIdentity | None = None
    ) -> None:
        """identity: what its listener proves itself with; None: as configured."""
        self.config = config
        self.store = store
        self.clock = clock
        self.identity = identity or make_identity(config, clock)
        shared = self.shared = Shared(config, store, clock)
        self.tasks, self.catalog, self.signals = shared.tasks, shared.catalog, shared.signals
        self.registry, self.board = shared.registry, shared.board
        self.replies, self.gates = shared.replies, shared.gates
        self.doors = Doors(
            store.tokens,
            store.join_tokens,
            DiskAdminFile(config.data_dir),
            clock,
            config.asks_for_tokens,
            config.join_token,
            lambda: self.identity.pin,
        )
        tickets = Tickets(config.relay_secret.encode() or os.urandom(32))
        self.relay = make_relay(config, tickets, is_open=lambda: not self.is_enforced())
        self.metrics = make_registry(self._read_state)
        self.watching = Watching(self.registry, self.board, store.metrics, clock, self.tasks, config)
        self.measuring = Measuring(ReplyMetrics(self.metrics), clock, self.watching.telemetry.take_reply)
        self.health = Health(store.ledger, config.data_dir, config.min_free_disk_gb, clock)
        rings = Rings(shared, LinkKeys(tickets, os.urandom, config.has_tls, self.is_enforced), self.watching)
        self.loading, self.ending = rings.loading, rings.ending
        self.healing, self.draining, self.faults = rings.healing, rings.draining, rings.faults
        self.routes_back, self.covering = rings.routes_back, rings.covering
        admissions = Admissions(self.doors.join_tokens, self.doors.are_open)
        self.joining = Joining(self.registry, store.fellows, self.board, self.faults, clock, admissions)
        self.access = Access(self.doors.tokens, self.registry, self.doors.calls, self.joining.confirm)

    def is_enforced(self) -> bool:
        """Whether stages must prove themselves, to each other and to the relay."""
        return self.config.has_tls or not self.doors.are_open()

    async def start(self) -> None:
        """Know again what was known: fellows, models, placements. Raises SwarmErrors of the store."""
        await asyncio.to_thread(self.catalog.refresh)
        await self.registry.start(self.config.recover_s)
        await self.doors.tokens.start()
        await recover(self.store.ledger, self.store.incidents, self.board, self.healing)

    def serve(self) -> None:
        """The server answers now: judge leases, take work."""
        self.tasks.keep(lambda: sweep_forever(self.registry, self.faults, self.healing, self.draining), "sweep")
        self.tasks.keep(lambda: keep_tokens(self.doors.tokens), "keep tokens")
        self.tasks.keep(self.routes_back.watch_forever, "routes back to direct")
        self.tasks.start(self.watching.run(), "watch over machines")
        self.tasks.keep(self.covering.watch_forever, "covers")
        self.tasks.keep(self.board.write_missed_forever, "what was not written")
        self.health.phase = "serving"

    async def drain(self, grace_s: float) -> None:
        """Take no more work; let running replies end, for `grace_s` at most; then end every link and all work."""
        self.health.phase = "stopping"
        await self.replies.wait_empty(grace_s)
        await self.tasks.close()
        why = Unavailable("the leader is stopping")
        for fellow in self.registry.all():
            if fellow.link is not None:
                fellow.link.end(why)
        self.replies.end_links(why)
        await self.doors.tokens.flush()

    def _read_state(self) -> State:
        return read_leader(self.board, self.registry, self.gates, self.relay.board)


def make_identity(config: LeaderConfig, clock: Clock) -> LeaderIdentity:
    """The certificates of this leader; nothing is made before they are needed."""
    named = [name.strip() for name in config.tls_names.split(",") if name.strip()]
    names = (*names_of_host(config.host), *named)
    return LeaderIdentity(config.data_dir, clock, config.has_tls, config.tls_files, names)
