"""The relay as configured: as a part of a leader, or served by itself."""

import asyncio
from collections.abc import Callable

import grpc
import structlog
from grpc_health.v1 import health
from silentswarm.relay.v1 import relay_pb2_grpc
from swarm_core.errors import BadRequest
from swarm_core.listen import is_loopback, join_host_port
from swarm_rpc.interceptors import Authorize, allow_all
from swarm_rpc.limits import MESSAGE_BYTES_MAX
from swarm_rpc.server import add_health_and_reflection, announce, listen, make_server
from swarm_rpc.tls import FileIdentity, server_credentials

from swarm_leader.config import LeaderConfig
from swarm_leader.metrics.answer import answering_metrics
from swarm_leader.metrics.state import make_registry, read_relay
from swarm_leader.relay.lane import LaneLimits
from swarm_leader.relay.servicer import RelayServicer
from swarm_leader.relay.ticket import Tickets
from swarm_leader.version import VERSION

log = structlog.get_logger()
GRACE_S = 3.0
RELAY_SERVICE = "silentswarm.relay.v1.Relay"


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
