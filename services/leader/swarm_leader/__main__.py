"""`swarm-leader`: puts the leader together, serves, and stops in order. `swarm-leader relay`: the relay alone."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before grpc is imported; its own lines help no reader of these logs

import grpc
import structlog
from grpc_health.v1 import health
from silentswarm.fellow.v1 import fellow_link_pb2_grpc, inference_link_pb2_grpc, transfer_pb2_grpc
from silentswarm.leader.v1 import (
    fleet_pb2_grpc,
    inference_pb2_grpc,
    models_pb2_grpc,
    resilience_pb2_grpc,
    serving_pb2_grpc,
    status_pb2_grpc,
    tokens_pb2_grpc,
    trust_pb2_grpc,
)
from silentswarm.relay.v1 import relay_pb2_grpc
from swarm_core.clock import Clock, SystemClock
from swarm_core.config import describe_variables, from_environment
from swarm_core.errors import BadRequest, SwarmError, Unavailable
from swarm_core.listen import is_loopback, join_host_port
from swarm_core.logs import configure_logs
from swarm_rpc.interceptors import Authorize, allow_all
from swarm_rpc.limits import MESSAGE_BYTES_MAX
from swarm_rpc.server import add_health_and_reflection, announce, listen, make_server
from swarm_rpc.tls import FileIdentity, server_credentials

from swarm_leader.catalog.disk import DiskCatalog
from swarm_leader.catalog.import_roots import read_import_roots
from swarm_leader.catalog.importer import Importer
from swarm_leader.config import LeaderConfig, check
from swarm_leader.domain.covers.risk import FellowHealth
from swarm_leader.domain.leases import Leases
from swarm_leader.flows.admission import Admissions
from swarm_leader.flows.board import Board, Placement
from swarm_leader.flows.covering import Covering
from swarm_leader.flows.doors import Doors, check_fetch
from swarm_leader.flows.draining import Draining
from swarm_leader.flows.ending import Ending
from swarm_leader.flows.faults import Faults
from swarm_leader.flows.fleet import Fleet
from swarm_leader.flows.gate import Gates
from swarm_leader.flows.generate import Generating
from swarm_leader.flows.healing_parts import Parts, make_healing
from swarm_leader.flows.health import Health
from swarm_leader.flows.join import Joining
from swarm_leader.flows.link_keys import LinkKeys
from swarm_leader.flows.load import Loading
from swarm_leader.flows.measure import Measuring
from swarm_leader.flows.network import Network
from swarm_leader.flows.ready import ReadyRings
from swarm_leader.flows.recover import recover
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.replacing import Replacing
from swarm_leader.flows.replies import Replies, Reply
from swarm_leader.flows.routes_back import RoutesBack
from swarm_leader.flows.signals import Signals
from swarm_leader.flows.stage_load import StageLoading
from swarm_leader.flows.sweep import sweep_forever
from swarm_leader.flows.tasks import TaskSet
from swarm_leader.flows.tokens import keep_tokens
from swarm_leader.flows.wire import Wiring
from swarm_leader.folders import address_told, lock_folder, open_folders
from swarm_leader.metrics.answer import answering_metrics
from swarm_leader.metrics.replies import ReplyMetrics
from swarm_leader.metrics.state import State, make_registry, read_leader, read_relay
from swarm_leader.relay.lane import LaneLimits
from swarm_leader.relay.servicer import RelayServicer
from swarm_leader.relay.ticket import Tickets
from swarm_leader.rpc.access import Access, current_caller
from swarm_leader.rpc.fellow_link import FellowLinkServicer
from swarm_leader.rpc.fleet import FleetServicer
from swarm_leader.rpc.inference import InferenceServicer
from swarm_leader.rpc.inference_link import InferenceLinkServicer
from swarm_leader.rpc.models import ModelsServicer
from swarm_leader.rpc.performance import PerformanceWriter
from swarm_leader.rpc.placements import StatusWriter
from swarm_leader.rpc.resilience import ResilienceServicer
from swarm_leader.rpc.serving import ServingServicer
from swarm_leader.rpc.status import StatusServicer
from swarm_leader.rpc.tokens import TokensServicer
from swarm_leader.rpc.transfer import TransferServicer
from swarm_leader.rpc.trust import TrustServicer
from swarm_leader.store import Store, open_store
from swarm_leader.store.admin_file import DiskAdminFile
from swarm_leader.telemetry.watching import Watching
from swarm_leader.trust.identity import LeaderIdentity, names_of_host

log = structlog.get_logger()
GRACE_S = 3.0
RELAY_SERVICE = "silentswarm.relay.v1.Relay"
LEADER_SERVICES = (
    *(
        f"silentswarm.leader.v1.{name}"
        for name in (
            "Models",
            "Serving",
            "Inference",
            "Fleet",
            "Status",
            "Tokens",
            "Trust",
            "Telemetry",
            "Logs",
            "Resilience",
        )
    ),
    *(f"silentswarm.fellow.v1.{name}" for name in ("FellowLink", "InferenceLink", "Transfer", "FellowLogs")),
    RELAY_SERVICE,
)
try:
    VERSION = version("silentswarm")
except PackageNotFoundError:  # run from a checkout that is not installed
    VERSION = "0+checkout"


class Leader:
    """Every part of one leader, put together over an open store."""

    def __init__(
        self, config: LeaderConfig, store: Store, clock: Clock, identity: LeaderIdentity | None = None
    ) -> None:
        """identity: what its listener proves itself with; None: as configured."""
        self.config = config
        self.identity = identity or make_identity(config, clock)
        self.store = store
        self.tasks = TaskSet()
        self.catalog = DiskCatalog(config.models_root)
        self.registry = Registry(store.fellows, Leases(clock, config.lease_s), clock)
        self.board = Board(store.ledger)
        self.signals = Signals()
        self.replies = Replies(config.event_queue_max, config.hold_s, self._may_return, self._makes)
        self.gates = Gates(config.queue_max, clock)
        tickets = Tickets(config.relay_secret.encode() or os.urandom(32))
        self.relay = make_relay(config, tickets, is_open=lambda: not self.is_enforced())
        self.metrics = make_registry(self._read_state)
        self.watching = Watching(self.registry, self.board, store.metrics, clock, self.tasks, config)
        self.measuring = Measuring(ReplyMetrics(self.metrics), clock, self.watching.telemetry.take_reply)
        self.health = Health(store.ledger, config.data_dir, config.min_free_disk_gb, clock)
        self.ending = Ending(self.board, self.registry, self.signals, self.replies, self.gates, config.unload_timeout_s)
        keys = LinkKeys(tickets, os.urandom, config.has_tls, self.is_enforced)
        self.wiring = Wiring(self.board, self.registry, self.signals, keys, config)
        stages = StageLoading(self.board, self.registry, self.signals, config)
        self.loading = Loading(
            self.catalog,
            self.board,
            self.registry,
            stages,
            self.wiring,
            self.ending,
            self.tasks,
            clock,
            config,
        )
        replacing = Replacing(self.catalog, self.board, self.registry, stages, self.wiring, self.ending, config)
        parts = Parts(self.board, self.registry, self.signals, stages, self.wiring, self.ending, replacing)
        incidents = self.watching.telling(store.incidents)
        self.healing = make_healing(parts, self.loading, self.tasks, clock, incidents, config)
        self.draining = Draining(self.board, self.registry, store.fellows, replacing, self.healing, self.tasks, clock)
        self.watching.replacing.drain = self.draining.drain
        self.faults = Faults(
            self.board,
            self.registry,
            self.healing,
            self.ending,
            self.tasks,
            clock,
            config.recover_s,
        )
        self.doors = Doors(
            store.tokens,
            store.join_tokens,
            DiskAdminFile(config.data_dir),
            clock,
            config.asks_for_tokens,
            config.join_token,
            lambda: self.identity.pin,
        )
        admissions = Admissions(self.doors.join_tokens, self.doors.are_open)
        self.joining = Joining(self.registry, store.fellows, self.board, self.faults, clock, admissions)
        self.routes_back = RoutesBack(
            self.board, self.registry, self.signals, self._rewire, self._has_replies, clock, config.route_retry_s
        )
        self.covering = Covering(self.board, self.registry, self.signals, replacing, clock, config, self._health_of)
        self.access = Access(self.doors.tokens, self.registry, self.doors.calls, self.joining.confirm)
        self._clock = clock

    def is_enforced(self) -> bool:
        """Whether stages must prove themselves, to each other and to the relay."""
        return self.config.has_tls or not self.doors.are_open()

    def add_to(self, server: grpc.aio.Server) -> None:
        """Let a server answer for it."""
        config, store, clock = self.config, self.store, self._clock
        doors = self.doors
        fleet = Fleet(
            self.registry, store.fellows, self.signals, self.faults, clock, config.unload_timeout_s, doors.calls
        )
        generating = Generating(
            self.catalog,
            self.board,
            self.registry,
            ReadyRings(self.catalog, self.board, self.loading, self.gates, config.load_timeout_s),
            self.faults,
            self.replies,
            self.gates,
            self.measuring,
            config,
        )
        writer = StatusWriter(self.registry, self.gates, self.measuring)
        roots = read_import_roots(config.import_roots)
        importer = Importer(config.models_root, is_loaded=self._is_loaded, roots=roots)
        telemetry = self.watching.telemetry
        beats, network = (config.heartbeat_s, config.lease_s), Network(self.registry, self.board)
        fellow_link = FellowLinkServicer(
            self.joining, self.registry, self.signals, self.faults, self.identity, *beats, telemetry, network
        )
        serving = ServingServicer(
            self.loading,
            self.board,
            self.catalog,
            writer,
            PerformanceWriter(self.registry, self.gates, self.measuring),
            config.transport,
        )
        models = ModelsServicer(self.catalog, importer, self.board.state_of)
        fellow_link_pb2_grpc.add_FellowLinkServicer_to_server(fellow_link, server)
        inference_link = InferenceLinkServicer(self.registry, self.replies)
        inference_link_pb2_grpc.add_InferenceLinkServicer_to_server(inference_link, server)
        transfer = TransferServicer(self.catalog, check=self._check_fetch)
        transfer_pb2_grpc.add_TransferServicer_to_server(transfer, server)
        models_pb2_grpc.add_ModelsServicer_to_server(models, server)
        serving_pb2_grpc.add_ServingServicer_to_server(serving, server)
        inference = InferenceServicer(generating, doors, clock.monotonic_s)
        inference_pb2_grpc.add_InferenceServicer_to_server(inference, server)
        fleet_pb2_grpc.add_FleetServicer_to_server(
            FleetServicer(fleet, self.draining, self.registry, clock, telemetry), server
        )
        resilience_pb2_grpc.add_ResilienceServicer_to_server(ResilienceServicer(store.incidents), server)
        self.watching.add_to(server)
        status_pb2_grpc.add_StatusServicer_to_server(StatusServicer(self.health, VERSION), server)
        trust_pb2_grpc.add_TrustServicer_to_server(TrustServicer(self.identity), server)
        tokens_pb2_grpc.add_TokensServicer_to_server(TokensServicer(doors.tokens, doors.join_tokens), server)
        relay_pb2_grpc.add_RelayServicer_to_server(self.relay, server)

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

    def _check_fetch(self, model_id: str) -> None:
        fellow_id = current_caller().fellow_id
        fellow = self.registry.get(fellow_id)
        covering = {placement_id for placement_id, _ in fellow.covers_made} if fellow is not None else ()
        check_fetch(self.board, fellow_id, model_id, covering)

    def _may_return(self, fellow_id: str, reply: Reply) -> bool:
        """Whether a reply may go on that waits for its fellow's link: the fellow may come back, and its ring stands."""
        placement = self.board.by_id(reply.placement_id)
        stands = placement is not None and placement.record.epoch == reply.epoch and placement.state.holds_memory
        return stands and self.registry.leases.is_running(fellow_id)

    def _makes(self, fellow_id: str, placement_id: str) -> bool:
        """Whether a fellow makes the replies of a placement: it holds the first stage."""
        placement = self.board.by_id(placement_id)
        return placement is not None and placement.record.stages[0].fellow_id == fellow_id

    def _rewire(self, placement: Placement, why: str) -> None:
        self.faults.take_way(placement, why)

    def _has_replies(self, model_id: str) -> bool:
        return self.gates.of(model_id).running > 0

    def _health_of(self, fellow: Fellow) -> FellowHealth:
        node = self.watching.telemetry.node(fellow)
        grade, figures = node.grade.band if node.grade is not None else "", node.figures
        return FellowHealth(grade, figures.availability, figures.reconnects, figures.disk_free_bytes)

    def _read_state(self) -> State:
        return read_leader(self.board, self.registry, self.gates, self.relay.board)

    def _is_loaded(self, model_id: str) -> bool:
        return any(one.reads(model_id) for one in self.board.all() if one.state.holds_memory)


def make_identity(config: LeaderConfig, clock: Clock) -> LeaderIdentity:
    """The certificates of this leader; nothing is made before they are needed."""
    named = [name.strip() for name in config.tls_names.split(",") if name.strip()]
    names = (*names_of_host(config.host), *named)
    return LeaderIdentity(config.data_dir, clock, config.has_tls, config.tls_files, names)


def make_relay(config: LeaderConfig, tickets: Tickets | None, is_open: Callable[[], bool]) -> RelayServicer:
    """The relay with this configuration's bounds. tickets, is_open: see RelayServicer."""
    payload_bytes_max = config.relay_max_frame_mb * 2**20
    limits = LaneLimits(
        frames_max=config.relay_queue_max,
        payload_bytes_max=payload_bytes_max,
        queued_bytes_max=2 * payload_bytes_max,
        put_timeout_s=config.relay_put_timeout_s,
        total_bytes_max=config.relay_memory_mb * 2**20,
    )
    return RelayServicer(limits, tickets, is_open)


def make_leader_server(config: LeaderConfig, authorize: Authorize = allow_all) -> grpc.aio.Server:
    """A server that takes the relay's largest frame, and of everything else what `authorize` lets through."""
    return make_server(max(MESSAGE_BYTES_MAX, (config.relay_max_frame_mb + 1) * 2**20), authorize)


async def serve_leader(config: LeaderConfig, stop: asyncio.Event) -> None:
    """Serve until `stop` is set; `config` is checked.

    Raises SwarmErrors when it cannot start: port, folder, database.
    """
    clock = SystemClock()
    with lock_folder(config.data_dir):
        store = await open_store(config.store_url, clock)
        try:
            leader = Leader(config, store, clock)
            server = make_leader_server(config, leader.access.authorize)
            credentials = await asyncio.to_thread(leader.identity.credentials)
            port = listen(server, join_host_port(config.host, config.grpc_port), credentials)
            async with answering_metrics(config.metrics_listen, leader.metrics):
                await _serve(leader, server, port, stop)
        finally:
            await store.close()
    log.info("leader stopped")


async def _serve(leader: Leader, server: grpc.aio.Server, port: int, stop: asyncio.Event) -> None:
    """From the first call it takes to the last."""
    leader.add_to(server)
    healthy = add_health_and_reflection(server, LEADER_SERVICES)
    await leader.start()
    address = join_host_port(leader.config.host, port)
    with address_told(leader.config.data_dir, address, has_own_roots=bool(leader.identity.pin)):
        await _serve_at(address, leader, server, healthy, stop)


async def _serve_at(
    address: str, leader: Leader, server: grpc.aio.Server, healthy: health.aio.HealthServicer, stop: asyncio.Event
) -> None:
    await server.start()
    leader.serve()
    await announce(healthy, LEADER_SERVICES, serving=True)
    pin = leader.identity.pin
    encryption = {"tls": f"sha256:{pin}" if pin else "own files"} if leader.identity.is_on else {}
    log.info(f"leader ready on {address}", version=VERSION, **encryption)
    await stop.wait()
    await announce(healthy, LEADER_SERVICES, serving=False)
    stopping = asyncio.create_task(server.stop(GRACE_S + 1))  # from now on new calls are refused
    await leader.drain(GRACE_S)
    await server.stop(None)
    await stopping


async def serve_relay(config: LeaderConfig, stop: asyncio.Event) -> None:
    """Serve the relay alone until `stop` is set; `config` is checked. Raises BadRequest when it cannot listen."""
    server = make_leader_server(config)
    credentials = await asyncio.to_thread(relay_credentials, config)
    port = listen(server, join_host_port(config.host, config.grpc_port), credentials)
    tickets = Tickets(config.relay_secret.encode()) if config.relay_secret else None
    relay = make_relay(config, tickets, is_open=lambda: tickets is None)
    relay_pb2_grpc.add_RelayServicer_to_server(relay, server)
    healthy: health.aio.HealthServicer = add_health_and_reflection(server, (RELAY_SERVICE,))
    async with answering_metrics(config.metrics_listen, make_registry(lambda: read_relay(relay.board))):
        await server.start()
        await announce(healthy, (RELAY_SERVICE,), serving=True)
        log.info(f"relay ready on {join_host_port(config.host, port)}", version=VERSION)
        await stop.wait()
        await announce(healthy, (RELAY_SERVICE,), serving=False)
        await server.stop(GRACE_S)
    log.info("relay stopped")


def relay_credentials(config: LeaderConfig) -> grpc.ServerCredentials | None:
    """What a relay of its own listens with; None without TLS. Raises BadRequest that says what it lacks."""
    if not (config.relay_secret or is_loopback(config.host) or config.allow_insecure):
        raise BadRequest(
            f"a relay of its own on {config.host} needs SWARM_RELAY_SECRET, the same as its leader's",
            field="SWARM_RELAY_SECRET",
        )
    if not config.has_tls:
        return None
    if config.tls_files is None:
        raise BadRequest(
            "a relay of its own makes no certificates: get one with `swarm trust issue --name HOST --out DIR` and set "
            "SWARM_TLS_CERT and SWARM_TLS_KEY",
            field="SWARM_TLS_CERT",
        )
    return server_credentials(FileIdentity(*config.tls_files))


async def run(command: str, config: LeaderConfig) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await (serve_relay if command == "relay" else serve_leader)(config, stop)


def parse_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The command line; --help lists every variable."""
    parser = argparse.ArgumentParser(
        prog="swarm-leader",
        description="The control plane of a swarm. Configured by environment variables; options win over them.",
        epilog=f"environment variables:\n{describe_variables(LeaderConfig)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "command", nargs="?", choices=("serve", "relay"), default="serve", help="relay: the relay alone"
    )
    parser.add_argument("--host", help="address to listen on")
    parser.add_argument("--grpc-port", type=int, help="port to listen on")
    parser.add_argument("--data-dir", type=Path, help="the leader's own folder")
    parser.add_argument("--version", action="version", version=VERSION)
    return parser.parse_args(arguments)


def main() -> None:
    """Console script. Exit code 0 after a stop, 2 when the configuration is refused, 1 when it could not start."""
    options = parse_arguments(sys.argv[1:])
    try:
        config = check(
            from_environment(
                LeaderConfig, os.environ, host=options.host, grpc_port=options.grpc_port, data_dir=options.data_dir
            )
        )
        if options.command == "serve":
            open_folders(config)
        configure_logs("relay" if options.command == "relay" else "leader", config.log_level, config.log_json)
    except SwarmError as error:
        print(f"swarm-leader: {error.message}", file=sys.stderr)
        sys.exit(2)
    try:
        asyncio.run(run(options.command, config))
    except SwarmError as error:
        sys.exit(f"swarm-leader: {error.message}")


if __name__ == "__main__":
    main()
