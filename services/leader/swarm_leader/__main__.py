"""`swarm-leader`: reads the command line and the environment, and serves. `swarm-leader relay`: the relay alone."""

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # before grpc is imported; its own lines help no reader of these logs

from swarm_core.config import describe_variables, from_environment
from swarm_core.errors import SwarmError
from swarm_core.logs import configure_logs

from swarm_leader.assembly.relaying import serve_relay
from swarm_leader.assembly.serving import serve_leader
from swarm_leader.config import LeaderConfig, check
from swarm_leader.folders import open_folders
from swarm_leader.version import VERSION


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
