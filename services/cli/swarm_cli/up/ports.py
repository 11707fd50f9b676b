"""Ports of this machine: free ones, and whether one is taken. Listens only to find out."""

import socket
from collections.abc import Iterable

from swarm_core.errors import Conflict

from swarm_cli.up.options import HOST


def choose_free_ports(names: Iterable[str], taken: Iterable[int]) -> dict[str, int]:
    """A free port for each name, all different and none of `taken`."""
    chosen: dict[str, int] = {}
    used = set(taken)
    for name in names:
        while (port := choose_port(0, "")) in used:  # two free ones may be the same, one after the other
            continue
        chosen[name] = port
        used.add(port)
    return chosen


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
