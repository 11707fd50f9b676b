"""Servers: guarded, limited, with health and reflection. Binding is checked before anything listens."""

from collections.abc import Sequence

import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection
from swarm_core.errors import BadRequest

from swarm_rpc.interceptors import Authorize, GuardInterceptor, allow_all
from swarm_rpc.limits import MESSAGE_BYTES_MAX, SERVER_OPTIONS, message_options


def make_server(
    message_bytes_max: int = MESSAGE_BYTES_MAX, authorize: Authorize = allow_all, streams_max: int = 1024
) -> grpc.aio.Server:
    """A server with the guard in front. streams_max: calls at once on one connection."""
    options = (*SERVER_OPTIONS, *message_options(message_bytes_max), ("grpc.max_concurrent_streams", streams_max))
    return grpc.aio.server(interceptors=[GuardInterceptor(authorize)], options=options)


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


def listen(server: grpc.aio.Server, address: str) -> int:
    """Bind "host:port" or "unix:/path"; port 0 takes a free one. Returns the port (1 for a socket path).

    Raises BadRequest when the address is taken or not ours.
    """
    try:
        port = server.add_insecure_port(address)
    except RuntimeError as error:
        raise BadRequest(
            f"cannot listen on {address}: the port is taken or not on this machine", field="port"
        ) from error
    if port == 0:
        raise BadRequest(f"cannot listen on {address}: the port is taken or not on this machine", field="port")
    return port
