"""What this leader proves itself with, and what it certifies for machines and listeners. Binds nothing."""

import contextlib
import ipaddress
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
import structlog
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest
from swarm_rpc.tls import LEADER_NAME, FileIdentity, Identity, IdentitySource, fellow_name, server_credentials

from swarm_leader.trust.authority import LEAF_LIFETIME_S, Authority, Purpose, not_after_s, open_authority
from swarm_leader.trust.requests import read_request

log = structlog.get_logger()

NAMES_MAX = 20
RESERVED_DOMAIN = ".silentswarm.internal"  # names by which our own processes know each other
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True)
class NodeCertificate:
    """What a machine gets at registration, PEM; both empty where links are plaintext."""

    certificate: bytes = b""
    roots: bytes = b""


class LeaderIdentity:
    """The leader's side of every certificate of its swarm.

    folder: where the authority is kept, made at first use. is_on: the listener speaks TLS. files: certificate and key
    of the operator's own, instead of a leaf of the authority. names: further names on that leaf.
    """

    def __init__(
        self,
        folder: Path,
        clock: Clock,
        is_on: bool,
        files: tuple[Path, Path] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        self.is_on = is_on
        self._folder = folder
        self._clock = clock
        self._files = files
        self._names = (LEADER_NAME, *dict.fromkeys((*LOCAL_NAMES, *names)))
        self._opening = threading.Lock()
        self._authority: Authority | None = None

    @property
    def authority(self) -> Authority:
        """Opened, or made, at first use. Raises BadRequest, DiskFull."""
        with self._opening:
            if self._authority is None:
                self._authority = open_authority(self._folder, self._clock)
            return self._authority

    @property
    def pin(self) -> str:
        """What join tokens carry so that a machine knows this leader; empty where its root would not lead here."""
        return self.authority.pin if self.is_on and self._files is None else ""

    @property
    def roots(self) -> bytes:
        """PEM; empty while TLS is off, when nothing leads to them."""
        return self.authority.roots if self.is_on else b""

    def credentials(self) -> grpc.ServerCredentials | None:
        """For the listener; None where it speaks no TLS. Raises BadRequest (files, names), DiskFull."""
        if not self.is_on:
            return None
        source: IdentitySource
        source = (
            FileIdentity(*self._files) if self._files else RenewedIdentity(self.authority, self._names, self._clock)
        )
        return server_credentials(source)

    def check_request(self, request: bytes) -> None:
        """Whether `certify_fellow` would take it. Raises BadRequest."""
        if self.is_on and request:
            read_request(request)

    def certify_fellow(self, fellow_id: str, request: bytes) -> NodeCertificate:
        """The certificate of a machine, under its own name; nothing while TLS is off, or when it asks for none.

        Raises BadRequest (the request is broken).
        """
        if not self.is_on or not request:
            return NodeCertificate()
        key = read_request(request)
        certificate = self.authority.issue(key, [fellow_name(fellow_id)], Purpose(server=True, client=True))
        return NodeCertificate(certificate, self.authority.roots)

    def certify_listener(self, request: bytes, names: Sequence[str]) -> bytes:
        """The certificate of a gateway, a relay or a metrics listener, PEM. Raises BadRequest."""
        if not 1 <= len(names) <= NAMES_MAX:
            raise BadRequest(f"a listener has 1..{NAMES_MAX} names", field="names")
        reserved = [name for name in names if f".{name.lower()}".endswith(RESERVED_DOMAIN)]
        if reserved:
            raise BadRequest(f"{reserved[0]} is a name of this swarm's own processes", field="names")
        return self.authority.issue(read_request(request), names)


class RenewedIdentity:
    """A leaf made when it is first needed and again when a third of its time is left. Its key is never written."""

    def __init__(self, authority: Authority, names: Sequence[str], clock: Clock) -> None:
        """Raises BadRequest (names)."""
        self._authority = authority
        self._names = names
        self._clock = clock
        self._renewing = threading.Lock()  # handshakes ask from threads of grpc
        self._identity = self._renew()

    def __call__(self) -> Identity:
        """The leaf to use now."""
        with self._renewing:
            if self._renew_at_s <= self._clock.unix_s():
                self._identity = self._renew()
                log.info("the leader's certificate was renewed")
            return self._identity

    def _renew(self) -> Identity:
        identity = self._authority.issue_identity(self._names)
        self._renew_at_s = not_after_s(identity.certificate) - LEAF_LIFETIME_S / 3
        return identity


def names_of_host(host: str) -> tuple[str, ...]:
    """What a listener's host adds to its names: itself, unless it stands for every interface."""
    with contextlib.suppress(ValueError):
        return () if ipaddress.ip_address(host.strip("[]")).is_unspecified else (host.strip("[]"),)
    return (host,)
