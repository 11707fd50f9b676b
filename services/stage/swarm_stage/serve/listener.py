"""The life of a stage process, from its socket to its stop. Reads no environment and changes none."""

import asyncio
import signal

from silentswarm.stage.v1 import stage_pb2_grpc
from swarm_rpc.server import listen, make_server

from swarm_stage.serve.runner import Build, StageRunner
from swarm_stage.serve.servicer import StageServicer

STOP_GRACE_S = 1.0


async def serve(socket_path: str, build: Build | None = None) -> None:
    """Serve stage.v1.Stage on a Unix socket until Stop or SIGTERM. build: see StageRunner."""
    runner = StageRunner(build=build)
    server = make_server()
    stage_pb2_grpc.add_StageServicer_to_server(StageServicer(runner), server)
    listen(server, f"unix:{socket_path}")
    await server.start()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, runner.stopping.set)
    await runner.stopping.wait()
    await runner.close()
    await server.stop(STOP_GRACE_S)
