"""Where a process may listen: on loopback, or beyond it with TLS; anything else must be asked for. Binds nothing."""

import ipaddress
from enum import StrEnum
from pathlib import Path

from swarm_core.errors import BadRequest


def is_loopback(host: str) -> bool:
    """Whether a bind host can only be reached from this machine. Names other than localhost are not trusted to be."""
    if host == "localhost" or host.startswith("unix:"):
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind_host(host: str, allow_insecure: bool, has_tls: bool = False) -> None:
    """Refuse to listen beyond this machine without TLS.

    Raises BadRequest that names the host and the ways out.
    """
    if is_loopback(host) or has_tls or allow_insecure:
        return
    raise BadRequest(
        f"will not listen on {host} without TLS: whoever is on the way could read prompts and replies and take tokens. "
        "Listen on 127.0.0.1, turn TLS on (docs/security.md), or set SWARM_ALLOW_INSECURE=1 if the network is yours "
        "alone.",
        field="host",
    )


class TlsMode(StrEnum):
    """What SWARM_TLS may say."""

    AUTO = "auto"
    ON = "1"
    OFF = "0"


def tls_is_on(mode: str, host: str, allow_insecure: bool, has_files: bool) -> bool:
    """Whether a listener speaks TLS. auto: when it has files of its own, or listens beyond this machine.

    allow_insecure: under auto, the network is trusted and nothing asks for TLS. Raises BadRequest for another mode.
    """
    if mode not in set(TlsMode):
        raise BadRequest(f"SWARM_TLS={mode!r} must be auto, 1 or 0", field="SWARM_TLS")
    if mode == TlsMode.AUTO:
        return has_files or not (is_loopback(host) or allow_insecure)
    return mode == TlsMode.ON


def tls_files(certificate: str, key: str) -> tuple[Path, Path] | None:
    """The files of SWARM_TLS_CERT and SWARM_TLS_KEY; None when neither is set. Raises BadRequest when one is missing.

    Whether they can be read is seen when they are.
    """
    if not certificate and not key:
        return None
    if not certificate or not key:
        missing = "SWARM_TLS_KEY" if certificate else "SWARM_TLS_CERT"
        raise BadRequest(f"{missing} is not set; a certificate and its key go together", field=missing)
    return Path(certificate).expanduser(), Path(key).expanduser()


def split_host_port(address: str) -> tuple[str, int]:
    """Read "host:port" or "[v6]:port". Raises BadRequest."""
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise BadRequest(f"{address!r} is not HOST:PORT", field="address")
    return host.strip("[]"), int(port)


def join_host_port(host: str, port: int) -> str:
    """Write "host:port", brackets around IPv6."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
