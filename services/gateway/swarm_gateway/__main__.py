"""swarm-gateway: reads the environment, composes the gateway, serves until it is told to stop."""

import argparse
import asyncio
import os
import resource
import signal
import sys
from collections.abc import Mapping
from functools import partial
from importlib.metadata import version

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before grpc is imported; its own lines help no reader of these logs

import structlog
from aiohttp import web
from swarm_core.clock import SystemClock
from swarm_core.config import describe_variables, from_environment
from swarm_core.errors import BadRequest, SwarmError, Unavailable
from swarm_core.listen import check_bind_host, join_host_port, split_host_port
from swarm_core.logs import configure_logs
from swarm_rpc.channel import dial
from swarm_rpc.leader_trust import check_plaintext, trust_for
from swarm_rpc.tls import Trust
from swarm_rpc.tls_words import explain

from swarm_gateway.app import make_app
from swarm_gateway.config import GatewayConfig, check
from swarm_gateway.front.origins import door_rules
from swarm_gateway.front.protocol import ConnectionLimits, GatewayRunner
from swarm_gateway.leader import Leader
from swarm_gateway.tls import GatewaySite, ListenerCertificate

log = structlog.get_logger()
HANDLER_GRACE_S = 1.0  # after the calls to the leader ended, for handlers to write their last words
TRUST_WAIT_S, TRUST_RETRY_S = 60.0, 1.0  # for a leader whose roots are known by their pin alone
KEEP_ALIVE_S = 75.0  # how long an idle connection is kept; longer than common proxies keep theirs
MESSAGE_OVERHEAD_BYTES = 2**20  # what a body may grow by as a protobuf message


def main() -> None:
    """Run the gateway. Exits 0 when stopped by a signal, 2 with a sentence on stderr when it cannot start."""
    try:
        config = read_config(sys.argv[1:], os.environ)
        configure_logs("gateway", config.log_level, config.log_json)
        asyncio.run(serve(config))
    except SwarmError as error:
        print(f"swarm-gateway: {error.message}", file=sys.stderr)
        sys.exit(2)


def read_config(arguments: list[str], environ: Mapping[str, str]) -> GatewayConfig:
    """Settings from options and environment; an option wins. Raises BadRequest naming the variable."""
    parser = argparse.ArgumentParser(
        prog="swarm-gateway",
        description="The HTTP side of SilentSwarm: OpenAI-compatible /v1, JSON /api/v1.",
        epilog=f"environment variables:\n{describe_variables(GatewayConfig)}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--leader", metavar="HOST:PORT", help="the leader's gRPC address (SWARM_LEADER)")
    parser.add_argument("--host", help="address to listen on (SWARM_GATEWAY_HOST)")
    parser.add_argument("--port", type=int, help="port to listen on (SWARM_HTTP_PORT)")
    options = parser.parse_args(arguments)
    config = check(
        from_environment(GatewayConfig, environ, leader=options.leader, host=options.host, port=options.port)
    )
    split_host_port(config.leader)
    door_rules(config.host, config.allowed_hosts, config.cors_origins)
    return config


async def serve(config: GatewayConfig) -> None:
    """Serve until SIGTERM or SIGINT, then stop within 5 s. Raises BadRequest when it cannot listen."""
    check_bind_host(config.host, config.allow_insecure, has_tls=bool(config.tls_cert))
    certificate = ListenerCertificate(config.tls_cert, config.tls_key) if config.tls_cert else None
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if certificate:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, certificate.look)
    allow_open_files()
    trust = await leader_trust(config)
    channel = dial(config.leader, config.body_bytes_max + MESSAGE_OVERHEAD_BYTES, trust)
    leader = Leader(channel, config.leader, partial(explain, config.leader, trust))
    runner = make_runner(make_app(config, leader, SystemClock(), version("silentswarm")), config)
    await runner.setup()
    watch = asyncio.create_task(certificate.watch()) if certificate else None
    try:
        port = await listen(runner, config, certificate)
        scheme = "https" if certificate else "http"
        log.info("listening", url=f"{scheme}://{join_host_port(config.host, port)}/v1", leader=config.leader)
        await stop.wait()
        log.info("stopping")
    finally:
        if watch is not None:
            watch.cancel()
        await runner.cleanup()


async def leader_trust(config: GatewayConfig) -> Trust | None:
    """What the leader must prove; None is plaintext, on this machine or where that was asked for.

    A pin needs the leader itself, which may start later than we: waited for TRUST_WAIT_S.
    Raises BadRequest for a setting that cannot be used, Unavailable, and PermissionDenied for another leader's root.
    """
    if not config.leader_ca:
        check_plaintext(config.leader, config.allow_insecure)
    until_s = asyncio.get_running_loop().time() + TRUST_WAIT_S
    while True:
        try:
            return await trust_for(config.leader, config.leader_ca)
        except Unavailable:
            if asyncio.get_running_loop().time() >= until_s:
                raise
        await asyncio.sleep(TRUST_RETRY_S)


def make_runner(app: web.Application, config: GatewayConfig) -> web.AppRunner:
    """The server around the application. A client that leaves cancels its handler, and so its call to the leader."""
    return GatewayRunner(
        app,
        ConnectionLimits(config.connections_max, config.header_timeout_s, config.write_timeout_s),
        handler_cancellation=True,
        access_log=None,
        shutdown_timeout=HANDLER_GRACE_S,
        keepalive_timeout=KEEP_ALIVE_S,
    )


async def listen(runner: web.AppRunner, config: GatewayConfig, certificate: ListenerCertificate | None = None) -> int:
    """Bind and start. Returns the port. Raises BadRequest when the address is taken or not this machine's."""
    try:
        await GatewaySite(runner, config.host, config.port, certificate).start()
    except OSError as error:
        address = join_host_port(config.host, config.port)
        raise BadRequest(
            f"cannot listen on {address}: {error.strerror or error}. Stop what uses it, or set SWARM_HTTP_PORT.",
            field="SWARM_HTTP_PORT",
        ) from None
    return runner.addresses[0][1]


def allow_open_files() -> None:
    """As many as the system lets this process have: each connection is one, and the usual limit is low."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    main()
