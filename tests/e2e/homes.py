"""Two homes on one machine: network namespaces behind masquerading routers, and a little internet between them.

    wan 10.99.0.1 (leader, gateway)
      |--- router-a 10.99.0.2 --masquerade-- home-a 192.168.7.2 (fellow)
      |--- router-b 10.99.0.3 --masquerade-- home-b 192.168.7.2 (fellow; the same private address, as in real homes)
Nothing can dial into a home, and the homes cannot reach each other, but through a tunnel that they may have made:

    home-a wg0 10.8.0.1 --- 10.8.0.2 wg0 home-b
"""

import os
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

WAN_ADDRESS = "10.99.0.1"
HOME_ADDRESS = "192.168.7.2"
TUNNEL_NETWORK = "10.8.0.0/24"
TUNNEL = "wg0"


def why_not() -> str:
    """Why namespaces cannot be used here; empty when they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "nft") if shutil.which(tool) is None]
    if missing:
        return f"{' and '.join(missing)} not installed (Debian: iproute2, nftables)"
    name = f"sw-try-{secrets.token_hex(2)}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)
    return "" if tried.returncode == 0 else f"ip netns does not work here: {tried.stderr.strip()}"


@dataclass(frozen=True)
class Homes:
    """Names of the namespaces."""

    wan: str
    home_a: str
    home_b: str

    def inside(self, namespace: str) -> tuple[str, ...]:
        """What to put before a command to run it in a namespace."""
        return ("ip", "netns", "exec", namespace)

    def can_reach(self, source: str, address: str, port: int) -> bool:
        """Whether a TCP connection from a namespace comes up within 2 s."""
        code = f"import socket; socket.create_connection(({address!r}, {port}), 2)"
        return (
            subprocess.run([*self.inside(source), "python3", "-c", code], capture_output=True, check=False).returncode
            == 0
        )

    def add_tunnel(self) -> None:
        """An interface in each home that leads to the other, as WireGuard's does."""
        _run(
            "ip",
            "link",
            "add",
            TUNNEL,
            "netns",
            self.home_a,
            "type",
            "veth",
            "peer",
            "name",
            TUNNEL,
            "netns",
            self.home_b,
        )
        for number, home in enumerate((self.home_a, self.home_b), start=1):
            _run("ip", "-n", home, "addr", "add", f"10.8.0.{number}/24", "dev", TUNNEL)
            _run("ip", "-n", home, "link", "set", TUNNEL, "up")

    def switch_tunnel(self, is_on: bool) -> None:
        """Off: what is sent into it is lost, and nobody is told."""
        _run("ip", "-n", self.home_a, "link", "set", TUNNEL, "up" if is_on else "down")


@contextmanager
def two_homes() -> Iterator[Homes]:
    """Make the namespaces; they and all in them are gone afterwards."""
    tag = secrets.token_hex(2)
    names = {role: f"sw-{role}-{tag}" for role in ("wan", "ra", "rb", "ha", "hb")}
    try:
        for name in names.values():
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        _run("ip", "-n", names["wan"], "link", "add", "br0", "type", "bridge")
        _run("ip", "-n", names["wan"], "addr", "add", f"{WAN_ADDRESS}/24", "dev", "br0")
        _run("ip", "-n", names["wan"], "link", "set", "br0", "up")
        for number, (router, home) in enumerate((("ra", "ha"), ("rb", "hb")), start=2):
            _add_home(names["wan"], names[router], names[home], number)
        yield Homes(names["wan"], names["ha"], names["hb"])
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)


def _add_home(wan: str, router: str, home: str, number: int) -> None:
    """A home behind a router that masquerades and lets nothing in."""
    _run("ip", "link", "add", "wan0", "netns", router, "type", "veth", "peer", "name", f"to-r{number}", "netns", wan)
    _run("ip", "-n", wan, "link", "set", f"to-r{number}", "master", "br0", "up")
    _run("ip", "-n", router, "addr", "add", f"10.99.0.{number}/24", "dev", "wan0")
    _run("ip", "-n", router, "link", "set", "wan0", "up")
    _run("ip", "link", "add", "home0", "netns", router, "type", "veth", "peer", "name", "eth0", "netns", home)
    _run("ip", "-n", router, "addr", "add", "192.168.7.1/24", "dev", "home0")
    _run("ip", "-n", router, "link", "set", "home0", "up")
    _run("ip", "-n", home, "addr", "add", f"{HOME_ADDRESS}/24", "dev", "eth0")
    _run("ip", "-n", home, "link", "set", "eth0", "up")
    _run("ip", "-n", home, "route", "add", "default", "via", "192.168.7.1")
    _run("ip", "netns", "exec", router, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    rules = """
        table inet nat {
          chain leaving { type nat hook postrouting priority 100; oifname "wan0" masquerade; }
          chain passing {
            type filter hook forward priority 0; policy drop;
            iifname "home0" accept; ct state established,related accept;
          }
          chain entering {
            type filter hook input priority 0; policy drop;
            iifname "home0" accept; ct state established accept;
          }
        }"""
    subprocess.run(["ip", "netns", "exec", router, "nft", "-f", "-"], input=rules, text=True, check=True)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
