"""`swarm-stage serve --socket PATH`: started by a fellow, serves one stage, ends with it."""

import os

# Before the libraries are imported, which read them once: whatever a model's files name, nothing is fetched for it.
os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"

import argparse
import asyncio
import signal
import sys

from silentswarm.stage.v1 import stage_pb2_grpc
from swarm_core.logs import configure_logs
from swarm_rpc.server import listen, make_server

from swarm_stage.serve.parent import die_with_parent
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


def main() -> None:
    """Parse, serve, exit without waiting for a computation in progress."""
    parser = argparse.ArgumentParser(prog="swarm-stage", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="serve one stage for the fellow that starts this")
    serving.add_argument("--socket", required=True, help="path of the Unix socket to listen on")
    arguments = parser.parse_args()
    configure_logs("stage", os.environ.get("SWARM_LOG_LEVEL", "INFO"), bool(os.environ.get("SWARM_LOG_JSON")))
    die_with_parent()
    asyncio.run(serve(arguments.socket))
    sys.stdout.flush()
    os._exit(0)  # the engine thread may be inside a long forward; there is nothing to save


if __name__ == "__main__":
    main()
