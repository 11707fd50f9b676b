"""A leader from the first call it takes to the last: folder, store, listener, and an end in order."""

import asyncio

import grpc
import structlog
from grpc_health.v1 import health
from swarm_core.clock import SystemClock
from swarm_core.listen import join_host_port
from swarm_rpc.server import add_health_and_reflection, announce, listen

from swarm_leader.assembly.leader import Leader
from swarm_leader.assembly.relaying import GRACE_S, make_leader_server
from swarm_leader.assembly.services import LEADER_SERVICES, add_services
from swarm_leader.config import LeaderConfig
from swarm_leader.folders import address_told, lock_folder
from swarm_leader.metrics.answer import answering_metrics
from swarm_leader.store import open_store
from swarm_leader.version import VERSION

log = structlog.get_logger()


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
    add_services(leader, server)
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
