"""`swarm-stage serve --socket PATH`: started by a fellow, serves one stage, ends with it."""

import os

# Before the libraries are imported, which read them once: whatever a model's files name, nothing is fetched for it.
os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"

import argparse
import asyncio
import sys

from swarm_core.logs import configure_logs

from swarm_stage.benchmark import benchmark
from swarm_stage.serve.importing import import_ahead
from swarm_stage.serve.listener import serve
from swarm_stage.serve.parent import die_with_parent


def main() -> None:
    """Parse, serve, exit without waiting for a computation in progress."""
    parser = argparse.ArgumentParser(prog="swarm-stage", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    serving = commands.add_parser("serve", help="serve one stage for the fellow that starts this")
    serving.add_argument("--socket", required=True, help="path of the Unix socket to listen on")
    serving.add_argument(
        "--import-ahead", action="store_true", help="import everything before listening: a spare, whose load is quick"
    )
    measuring = commands.add_parser("benchmark", help="print how fast a device multiplies, as JSON")
    measuring.add_argument("--device", required=True, help='"cpu" or "cuda:0"')
    arguments = parser.parse_args()
    if arguments.command == "benchmark":
        print(benchmark(arguments.device), flush=True)
        return
    configure_logs("stage", os.environ.get("SWARM_LOG_LEVEL", "INFO"), bool(os.environ.get("SWARM_LOG_JSON")))
    die_with_parent()
    if arguments.import_ahead:
        import_ahead()
    asyncio.run(serve(arguments.socket))
    sys.stdout.flush()
    os._exit(0)  # the engine thread may be inside a long forward; there is nothing to save


if __name__ == "__main__":
    main()
