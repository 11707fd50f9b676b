"""Servers: guarded, limited, with health and reflection. Binding is checked before anything listens."""

from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from swarm_core.errors import BadRequest

from swarm_rpc.interceptors import Authorize, GuardInterceptor, allow_all
from swarm_rpc.limits import MESSAGE_BYTES_MAX, SERVER_OPTIONS, message_options

# A connection that has not shaken hands by then is closed, in TLS or without: it holds a place and proves nothing.
HANDSHAKE_TIMEOUT_MS = 10_000


@dataclass(frozen=True)
class ConnectionLimits:
    """For a listener that only a few peers have business with.

    connections_max: more are closed as they come. idle_s: one without a call for so long is closed.
    handshake_s: one that has not shaken hands by then is closed.
    """

    connections_max: int
    idle_s: float
    handshake_s: float

    def options(self) -> tuple[tuple[str, int], ...]:
        """As grpc takes them."""
        return (
            ("grpc.max_allowed_incoming_connections", self.connections_max),
            ("grpc.max_connection_idle_ms", int(self.idle_s * 1000)),
            ("grpc.server_handshake_timeout_ms", int(self.handshake_s * 1000)),
        )


def make_server(
    message_bytes_max: int = MESSAGE_BYTES_MAX,
    authorize: Authorize = allow_all,
    streams_max: int = 1024,
    limits: ConnectionLimits | None = None,
) -> grpc.aio.Server:
    """A server with the guard in front. streams_max: calls at once on one connection."""
    options = (*SERVER_OPTIONS, *message_options(message_bytes_max), ("grpc.max_concurrent_streams", streams_max))
    bounds = limits.options() if limits else (("grpc.server_handshake_timeout_ms", HANDSHAKE_TIMEOUT_MS),)
    return grpc.aio.server(interceptors=[GuardInterceptor(authorize)], options=(*options, *bounds))


def add_health_and_reflection(server: grpc.aio.Server, service_names: Sequence[str]) -> health.aio.HealthServicer:
    """Let grpcurl and load balancers look. Returns the health servicer, so that a stop can be announced."""
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    names = (*service_names, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(names, server)
    return servicer


async def announce(servicer: health.aio.HealthServicer, service_names: Sequence[str], serving: bool) -> None:
    """Say for every service, and for the whole ("") whether it serves."""
    state = health_pb2.HealthCheckResponse.SERVING if serving else health_pb2.HealthCheckResponse.NOT_SERVING
    for name in ("", *service_names):
        await servicer.set(name, state)


def listen(server: grpc.aio.Server, address: str, credentials: grpc.ServerCredentials | None = None) -> int:
    """Bind "host:port" or "unix:/path"; port 0 takes a free one. Returns the port (1 for a socket path).

    credentials: None listens without TLS. Raises BadRequest when the address is taken or not ours.
    """
    try:
        port = server.add_secure_port(address, credentials) if credentials else server.add_insecure_port(address)
    except RuntimeError as error:
        raise BadRequest(
            f"cannot listen on {address}: the port is taken or not on this machine", field="port"
        ) from error
    if port == 0:
        raise BadRequest(f"cannot listen on {address}: the port is taken or not on this machine", field="port")
    return port
