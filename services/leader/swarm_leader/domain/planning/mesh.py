"""Which addresses of a fellow are in an overlay network, such as WireGuard's. Pure: text in, no look-ups."""

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

from swarm_core.errors import BadRequest
from swarm_core.listen import split_host_port

from swarm_leader.domain.records import Transport

Network = IPv4Network | IPv6Network
# Tailscale's two, the first of which others use as well. WireGuard, ZeroTier and Nebula have none of their own: a
# network of theirs has to be named.
USUAL_NETWORKS = (ip_network("100.64.0.0/10"), ip_network("fd7a:115c:a1e0::/48"))


def read_networks(text: str) -> tuple[Network, ...]:
    """The usual networks and those of "10.8.0.0/24,fd00:8::/64". Raises BadRequest that names SWARM_MESH_NETWORKS."""
    named = []
    for entry in filter(None, (part.strip() for part in text.split(","))):
        try:
            named.append(ip_network(entry))
        except ValueError as error:
            raise BadRequest(
                f"SWARM_MESH_NETWORKS: {entry!r} is no network such as 10.8.0.0/24: {error}",
                field="SWARM_MESH_NETWORKS",
                entry=entry,
            ) from None
    return (*USUAL_NETWORKS, *named)


def usable_addresses(addresses: Sequence[str], transport: Transport, networks: Sequence[Network]) -> tuple[str, ...]:
    """Where a stage may be dialled: everywhere it listens, and with MESH only in these networks. Order is kept."""
    if transport is not Transport.MESH:
        return tuple(addresses)
    return tuple(address for address in addresses if _is_within(address, networks))


def say_unusable(fellow: str, addresses: Sequence[str], transport: Transport) -> str:
    """Why a ring with this transport cannot have this fellow, none of whose addresses is usable, and the fix."""
    listens = f"it listens at {', '.join(addresses)}" if addresses else "it listens nowhere"
    if transport is not Transport.MESH:
        return f"fellow {fellow} has no address for direct links, and the transport is {transport.value}"
    return (
        f"fellow {fellow} has no address in an overlay network, and the transport is mesh: {listens}; set "
        "SWARM_RING_BIND_HOST=mesh there, and name networks other than Tailscale's in the leader's SWARM_MESH_NETWORKS"
    )


def _is_within(address: str, networks: Sequence[Network]) -> bool:
    try:
        host = ip_address(split_host_port(address)[0])
    except (BadRequest, ValueError):
        return False  # a name: whose network it is in, nobody here knows
    return any(host.version == network.version and host in network for network in networks)
