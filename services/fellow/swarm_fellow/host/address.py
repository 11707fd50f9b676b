"""Where other machines can dial this one. Asks the routing table and the interfaces; sends nothing."""

import ipaddress
import socket
from collections.abc import Mapping, Sequence

import psutil
from swarm_core.errors import BadRequest
from swarm_core.listen import split_host_port

MESH = "mesh"  # as a bind host: whichever overlay network this machine is in
OVERLAY_INTERFACES = ("wg", "tailscale", "zt", "nebula")  # how WireGuard and its like begin their names
OVERLAY_NETWORKS = (ipaddress.ip_network("100.64.0.0/10"), ipaddress.ip_network("fd7a:115c:a1e0::/48"))  # Tailscale's

# Addresses of each interface.
Interfaces = Mapping[str, Sequence[str]]


def bind_address(bind_host: str, interfaces: Interfaces) -> str:
    """The address to listen on, for an address, the name of an interface, or MESH; other names stay as they are.

    IPv4 comes first where an interface has both. Raises BadRequest that says what this machine has.
    """
    if bind_host == MESH:
        found = [address for name, some in interfaces.items() for address in some if _is_overlay(name, address)]
        wanted = f"an overlay network ({', '.join(f'{name}*' for name in OVERLAY_INTERFACES)}, 100.64.0.0/10)"
    elif bind_host in interfaces:
        found, wanted = list(interfaces[bind_host]), f"the interface {bind_host}"
    else:
        return bind_host
    if not found:
        has = "; ".join(f"{name} {', '.join(some)}" for name, some in interfaces.items() if some) or "no interface"
        raise BadRequest(
            f"SWARM_RING_BIND_HOST={bind_host}: this machine has no address in {wanted}; it has: {has}",
            field="SWARM_RING_BIND_HOST",
        )
    return min(found, key=lambda address: ":" in address)


def read_interfaces() -> dict[str, list[str]]:
    """The addresses of every interface, without those that hold on one cable only."""
    families = (socket.AF_INET, socket.AF_INET6)
    return {
        name: [
            one.address
            for one in some
            if one.family in families and not ipaddress.ip_address(one.address.partition("%")[0]).is_link_local
        ]
        for name, some in psutil.net_if_addrs().items()
    }


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


def _is_overlay(interface: str, address: str) -> bool:
    host = ipaddress.ip_address(address)
    within = any(host.version == network.version and host in network for network in OVERLAY_NETWORKS)
    return within or interface.startswith(OVERLAY_INTERFACES)
