"""Where a process may listen. Loopback until tokens and TLS exist; anything else must be asked for."""

import ipaddress

from swarm_core.errors import BadRequest


def is_loopback(host: str) -> bool:
    """Whether a bind host can only be reached from this machine. Names other than localhost are not trusted to be."""
    if host == "localhost" or host.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind_host(host: str, allow_insecure: bool) -> None:
    """Refuse to listen beyond this machine while there is no authentication.

    Raises BadRequest that names the host and the two ways out.
    """
    if is_loopback(host) or allow_insecure:
        return
    raise BadRequest(
        f"will not listen on {host}: there is no authentication or TLS yet, so anyone who reaches it could use "
        "your machines. Listen on 127.0.0.1, or set SWARM_ALLOW_INSECURE=1 if the network is yours alone.",
        field="host",
    )


def split_host_port(address: str) -> tuple[str, int]:
    """Read "host:port" or "[v6]:port". Raises BadRequest."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise BadRequest(f"{address!r} is not HOST:PORT", field="address")
    return host.strip("[]"), int(port)


def join_host_port(host: str, port: int) -> str:
    """Write "host:port", brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
