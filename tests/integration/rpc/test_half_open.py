"""A peer that stands still without closing its connection is noticed within a lease."""

import asyncio
import os
import signal
import sys

import grpc
import pytest
from swarm_rpc.channel import dial
from swarm_rpc.limits import KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS

LEASE_S = 15.0
SERVER = """
import asyncio, sys, grpc
from swarm_rpc.server import listen, make_server
from grpc_health.v1 import health, health_pb2, health_pb2_grpc

async def main():
    server = make_server()
    servicer = health.aio.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    port = listen(server, "127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()

asyncio.run(main())
"""


def test_both_halves_of_the_notice_fit_into_a_lease():
    assert (KEEPALIVE_MS + KEEPALIVE_TIMEOUT_MS) / 1000 < LEASE_S


@pytest.mark.timeout(60)
async def test_a_frozen_peer_ends_an_open_stream_within_a_lease():
    """gRPC's own ping timeout of 60 s once overruled ours."""
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    process = await asyncio.create_subprocess_exec(sys.executable, "-c", SERVER, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(await asyncio.wait_for(process.stdout.readline(), 20))
        async with dial(f"127.0.0.1:{port}") as channel:
            watching = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            await watching.read()
            os.kill(process.pid, signal.SIGSTOP)
            started_s = asyncio.get_running_loop().time()
            with pytest.raises(grpc.RpcError):
                while await watching.read() is not grpc.aio.EOF:
                    pass
            noticed_s = asyncio.get_running_loop().time() - started_s
    finally:
        process.kill()
        await process.wait()

    assert noticed_s < LEASE_S + 5  # the machine may be busy; without the fix it is more than 60
