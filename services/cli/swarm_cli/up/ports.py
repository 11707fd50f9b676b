"""Ports of this machine: free ones, and whether one is taken. Listens only to find out."""

import socket

from swarm_core.errors import Conflict

from swarm_cli.up.options import HOST


def choose_port(port: int, option: str) -> int:
    """The port asked for, or a free one for 0.

    Raises Conflict that names the option when another process listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as servers do: a port in TIME_WAIT is free
        try:
            probe.bind((HOST, port))
        except PermissionError:
            raise Conflict(
                f"port {port} needs root; choose one above 1023 with {option}, or 0 for a free one"
            ) from None
        except OSError:
            raise Conflict(
                f"port {port} is taken by another process; choose another with {option}, or 0 for a free one", port=port
            ) from None
        return probe.getsockname()[1]
