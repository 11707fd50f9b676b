"""Certificates on channels and listeners: what a peer must prove, and with what. Issues none, connects nowhere."""

import hashlib
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import structlog
from swarm_core.errors import BadRequest

log = structlog.get_logger()

ORGANIZATION = "SilentSwarm"  # of a root that a leader made; by it a client knows that names of ours are on its leaves
LEADER_NAME = "leader.silentswarm.internal"  # on every leader's leaf, so that its address may change
FELLOW_DOMAIN = "fellow.silentswarm.internal"
FILE_BYTES_MAX = 2**20  # of a PEM file; a system's whole bundle is a quarter of it


@dataclass(frozen=True)
class Identity:
    """What a process proves itself with. certificate: PEM, with what leads to its root. key: PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True)
class Trust:
    """What a client asks of a server.

    roots: PEM; the server's certificate must lead to one of them. name: the name it must carry; empty is the host that
    is dialled. identity: what the client proves itself with, where it is asked.
    """

    roots: bytes = field(repr=False)
    name: str = ""
    identity: Identity | None = None

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """As grpc takes them."""
        mine = self.identity
        return grpc.ssl_channel_credentials(self.roots, mine.key if mine else None, mine.certificate if mine else None)


# Asked at every handshake, so that a renewed certificate is used without a restart; must not block.
IdentitySource = Callable[[], Identity]


def fellow_name(fellow_id: str) -> str:
    """The name on the certificate of a fellow."""
    return f"{fellow_id}.{FELLOW_DOMAIN}"


def server_credentials(source: IdentitySource, client_roots: bytes = b"") -> grpc.ServerCredentials:
    """TLS for a listener. client_roots: PEM; with it, clients must prove that they lead there.

    A source that fails later leaves the certificate as it was. Raises what the source raises at first.
    """
    current = source()

    def configured(identity: Identity) -> grpc.ServerCertificateConfiguration:
        return grpc.ssl_server_certificate_configuration([(identity.key, identity.certificate)], client_roots or None)

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal current
        try:
            newest = source()
        except Exception as error:
            log.error("the certificate cannot be read again; the old one stays", why=str(error))
            return None
        if newest == current:
            return None
        current = newest
        return configured(newest)

    return grpc.dynamic_ssl_server_credentials(configured(current), fetch, bool(client_roots))


class FileIdentity:
    """A certificate and its key from files, read again when one of them changes.

    Files that do not fit together at a later time, as between two writes of a renewal, leave the old pair in use.
    """

    def __init__(self, certificate: Path, key: Path, variable: str = "SWARM_TLS_CERT") -> None:
        """variable: names the setting in errors. Raises BadRequest when the files cannot be read or do not fit."""
        self._files = (certificate, key)
        self._variable = variable
        self._stamp = self._stamps()
        self._identity = self._read()

    def __call__(self) -> Identity:
        """The newest pair that fits."""
        try:
            stamp = self._stamps()
            if stamp != self._stamp:
                self._stamp = stamp
                self._identity = self._read()
        except BadRequest as error:
            log.error("the renewed certificate is not usable; the old one stays", why=error.message)
        return self._identity

    def _stamps(self) -> tuple[tuple[int, int, int], ...]:
        try:
            stats = [file.stat() for file in self._files]
        except OSError as error:
            raise self._refusal(f"{error.filename}: {(error.strerror or str(error)).lower()}") from None
        return tuple((stat.st_mtime_ns, stat.st_size, stat.st_ino) for stat in stats)

    def _read(self) -> Identity:
        certificate, key = self._files
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key, password=_no_password)
            return Identity(certificate.read_bytes(), key.read_bytes())
        except ssl.SSLError as error:
            why = (error.reason or str(error)).lower().replace("_", " ")
            raise self._refusal(f"{certificate} and {key} are no certificate and its key in PEM ({why})") from None
        except ValueError:
            raise self._refusal(
                f"{key} is protected by a password; the key must lie open, readable by us only"
            ) from None
        except OSError as error:
            raise self._refusal(f"{certificate}, {key}: {(error.strerror or str(error)).lower()}") from None

    def _refusal(self, why: str) -> BadRequest:
        return BadRequest(f"{self._variable}: {why}", field=self._variable)


def _no_password() -> str:
    raise ValueError("a password is asked for")


def read_roots(file: Path, variable: str) -> bytes:
    """PEM roots from a file. Raises BadRequest, naming the variable, when there are none in it."""
    try:
        with file.open("rb") as stream:
            roots = stream.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadRequest(f"{variable}={file}: {(error.strerror or str(error)).lower()}", field=variable) from None
    check_roots(roots, f"{variable}={file}", variable)
    return roots


def check_roots(roots: bytes, where: str, variable: str = "") -> None:
    """Raises BadRequest when `roots` are no PEM certificates. where: begins the sentence."""
    try:
        if len(roots) > FILE_BYTES_MAX:
            raise ValueError("it is too large")
        ssl.create_default_context(cadata=roots.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        why = getattr(error, "reason", None) or str(error)
        raise BadRequest(f"{where} holds no certificates in PEM ({why})", field=variable) from None


def sha256_of_root(roots: bytes) -> str:
    """SHA-256 of the first certificate's DER, hex: what a pin names. Raises ValueError when there is none."""
    return digest_of_pem(first_certificate(roots))


def digest_of_pem(certificate: bytes) -> str:
    """SHA-256 of one certificate's DER, hex."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.decode("ascii"))).hexdigest()


def first_certificate(roots: bytes) -> bytes:
    """The first PEM certificate. Raises ValueError when there is none."""
    end_mark = b"-----END CERTIFICATE-----"
    begin, end = roots.find(b"-----BEGIN CERTIFICATE-----"), roots.find(end_mark)
    if begin < 0 or end < begin:
        raise ValueError("no certificate in PEM")
    return roots[begin : end + len(end_mark)] + b"\n"


def is_own_root(roots: bytes) -> bool:
    """Whether every root was made by a leader, so that its leaves carry names of ours and not those of hosts."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=roots.decode("ascii"))
    except (ssl.SSLError, ValueError):
        return False
    subjects = [dict(pair[0] for pair in root["subject"]) for root in context.get_ca_certs()]
    return bool(subjects) and all(subject.get("organizationName") == ORGANIZATION for subject in subjects)
