"""Which names this gateway answers to, and which web pages may use it. Pure: decides, answers nothing.

A page of any site can make a browser send requests here: under its own name (Origin), or under a name of its own that
it lets point at this machine (Host). Programs that are no browsers send neither falsely.
"""

import ipaddress
import re
from dataclasses import dataclass

from swarm_core.errors import BadRequest
from swarm_core.listen import is_loopback

ANY = "*"
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::(?P<port>[0-9]{1,5}))?")
_ORIGIN = re.compile(r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<authority>[^/?#@\s]+)")
_PORTS = {"http": "80", "https": "443"}
_WILDCARDS = {"0.0.0.0", "::", ""}  # bind hosts that mean every address of the machine


@dataclass(frozen=True)
class DoorRules:
    """Names and origins that are let in.

    hosts: names without port, lower case. any_address: also every IP address; a site cannot let one point elsewhere.
    origins: "https://chat.example", lower case, besides the gateway's own.
    """

    hosts: frozenset[str]
    origins: frozenset[str]
    any_address: bool = False

    def knows_host(self, host: str) -> bool:
        """Whether a Host header, or the authority of a request's target, is a name of this gateway."""
        parsed = _HOST.fullmatch(host)
        if parsed is None:
            return False
        if ANY in self.hosts:
            return True
        name = parsed["name"].strip("[]").rstrip(".").lower()
        return name in self.hosts or is_loopback(name) or (self.any_address and _is_address(name))

    def allows_origin(self, origin: str, scheme: str, host: str) -> bool:
        """Whether a page of this origin may use the gateway, reached as scheme://host.

        A page served over https by a proxy before this gateway is its own page too.
        """
        parsed = _ORIGIN.fullmatch(origin.lower())
        if parsed is None:
            return False  # "null" too: sandboxed frames and local files of anyone
        page = parsed["scheme"]
        is_own = page in ("https", scheme) and _authority(parsed["authority"], page) == _authority(host.lower(), page)
        return is_own or ANY in self.origins or origin.lower() in self.origins


def door_rules(bind_host: str, allowed_hosts: str, cors_origins: str) -> DoorRules:
    """Rules from settings; lists are separated by commas. Raises BadRequest that names the variable."""
    names = {name.strip().lower() for name in allowed_hosts.split(",")} - {""}
    for name in names:
        parsed = _HOST.fullmatch(name)
        if name != ANY and (parsed is None or parsed["port"]):
            raise BadRequest(f"SWARM_ALLOWED_HOSTS: {name!r} is not a host name without port", field="allowed_hosts")
    origins = {origin.strip().lower().rstrip("/") for origin in cors_origins.split(",")} - {""}
    for origin in origins:
        if origin != ANY and _ORIGIN.fullmatch(origin) is None:
            words = f"SWARM_CORS_ORIGINS: {origin!r} is not an origin such as https://chat.example"
            raise BadRequest(words, field="cors_origins")
    bound = bind_host.strip("[]").lower()
    hosts = {name.strip("[]") for name in names} | {"localhost", bound}
    return DoorRules(frozenset(hosts), frozenset(origins), bound in _WILDCARDS)


def _authority(text: str, scheme: str) -> str:
    """Name and port, without the port the scheme has anyway."""
    return text.removesuffix(f":{_PORTS.get(scheme, '')}")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
