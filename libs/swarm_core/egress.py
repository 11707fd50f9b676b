"""Where whoever fetches from a hub may connect: the hub the operator named, and the public internet. Connects nowhere.

What a hub answers decides where its files are fetched from: the real one redirects to the hosts of its storage. Judged
is the address that is about to be dialled, so neither a name that resolves to another address each time, nor a number
written in octal, nor a redirect leads inside.
"""

import ipaddress
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
Address = tuple[str, int]
Resolve = Callable[[str, int], Iterable[str]]


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet, also where it carries another one inside."""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        inner = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            inner = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
    return ip.is_global and not ip.is_multicast


@dataclass(frozen=True)
class Door:
    """Where connections may go: to `own` (the hub itself and the proxies of this machine), and to public addresses.

    origin: scheme, host and port of the hub; it alone may be asked without TLS.
    """

    origin: tuple[str, str, int]
    own: frozenset[Address]

    def why_url_refused(self, url: str) -> str:
        """Why this may not be asked; empty when it may."""
        origin = _origin(url)
        if origin is None:
            return f"{url[:200]} is no address of the web"
        if origin[0] != "https" and origin != self.origin:
            return f"{origin[0]}://{origin[1]} is another host than the hub, without TLS"
        return ""

    def why_address_refused(self, address: Any) -> str:
        """Why nothing may be sent to this socket address; empty when it may."""
        if not isinstance(address, tuple) or len(address) < 2:
            return "a socket of this machine"
        host, port = str(address[0]), address[1]
        if (host, port) in self.own or is_public(host):
            return ""
        return f"{host}:{port} is not of the public internet, nor the hub itself"


def make_door(endpoint: str, proxies: Iterable[str], resolve: Resolve | None = None) -> Door:
    """The door for one hub. endpoint, proxies: URLs from the operator's environment. Raises ValueError, OSError.

    Names are resolved here, once: what the hub's own name resolves to later counts only while it is public.
    """
    origin = _origin(endpoint)
    if origin is None:
        raise ValueError(f"HF_ENDPOINT={endpoint!r} is neither an http:// nor an https:// address")
    resolve = resolve or _resolve
    own: set[Address] = {(address, origin[2]) for address in resolve(origin[1], origin[2])}
    for proxy in proxies:
        place = _origin(proxy if "://" in proxy else f"http://{proxy}")
        if place is not None:
            own |= {(address, place[2]) for address in resolve(place[1], place[2])}
    return Door(origin, frozenset(own))


def _resolve(host: str, port: int) -> set[str]:
    return {str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)}


def _origin(url: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url)
        if parts.scheme in _PORTS and parts.hostname:
            return parts.scheme, parts.hostname, parts.port or _PORTS[parts.scheme]
    except ValueError:  # a port that is none
        pass
    return None
