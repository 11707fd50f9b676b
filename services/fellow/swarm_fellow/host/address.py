"""Where other machines can dial this one. Asks the routing table; sends nothing."""

import ipaddress
import socket

from swarm_core.listen import split_host_port


def advertised_host(bind_host: str, advertise_host: str, leader: str) -> str:
    """The host peers dial: what the operator says, else the bind host, else the outward address towards the leader.

    Empty when the stages do not listen.
    """
    if not bind_host:
        return ""
    if advertise_host:
        return advertise_host.strip("[]")
    return outward_host(leader) if _is_every_interface(bind_host) else bind_host


def outward_host(leader: str) -> str:
    """The local address packets to the leader leave from; 127.0.0.1 when there is no route."""
    host, port = split_host_port(leader)
    try:
        for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM):
            with socket.socket(family, kind) as probe:
                probe.connect(address)  # a datagram socket only picks a route; no packet leaves
                return str(probe.getsockname()[0])
    except OSError:
        pass
    return "127.0.0.1"


def _is_every_interface(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
