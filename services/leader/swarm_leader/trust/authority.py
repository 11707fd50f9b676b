"""A small certificate authority: one P-256 key in one file, made once. Decides nothing about who gets a certificate."""

import contextlib
import datetime
import ipaddress
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPublicKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest, DiskFull
from swarm_rpc.tls import ORGANIZATION, Identity, digest_of_pem

log = structlog.get_logger()

FILE_NAME = "authority.pem"
ROOTS_NAME = "roots.pem"
DAY_S = 86_400.0
BACKDATED_S = 2 * DAY_S  # a machine whose clock is a day behind, and one that thinks so, still believe it
ROOT_LIFETIME_S = 3650 * DAY_S
LEAF_LIFETIME_S = 365 * DAY_S
COMMON_NAME_MAX = 64  # X.520
DNS_NAME = re.compile(r"(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?", re.I)


@dataclass(frozen=True)
class Purpose:
    """What a certificate may be used for."""

    server: bool = True
    client: bool = False


class Authority:
    """Signs leaves. What it signed is not remembered: a certificate alone opens nothing."""

    def __init__(self, key: ec.EllipticCurvePrivateKey, root: x509.Certificate, clock: Clock) -> None:
        self._key = key
        self._root = root
        self._clock = clock

    @property
    def roots(self) -> bytes:
        """Its root, PEM."""
        return self._root.public_bytes(serialization.Encoding.PEM)

    @property
    def pin(self) -> str:
        """SHA-256 of its root's DER, hex."""
        return digest_of_pem(self.roots)

    def issue(
        self,
        public_key: CertificateIssuerPublicKeyTypes,
        names: Sequence[str],
        purpose: Purpose = Purpose(),
        lifetime_s: float = LEAF_LIFETIME_S,
    ) -> bytes:
        """A certificate for these DNS names and IP addresses, PEM, with the root behind it. Raises BadRequest (names).

        It never outlives the root.
        """
        now = self._now()
        ends = min(now + datetime.timedelta(seconds=lifetime_s), self._root.not_valid_after_utc)
        issuer = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH] * purpose.server + [ExtendedKeyUsageOID.CLIENT_AUTH] * purpose.client
        certificate = (
            x509.CertificateBuilder()
            .subject_name(_subject(names[0]))
            .issuer_name(self._root.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(seconds=BACKDATED_S))
            .not_valid_after(ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM) + self.roots

    def issue_identity(self, names: Sequence[str], purpose: Purpose = Purpose()) -> Identity:
        """A new key and its certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        return Identity(self.issue(key.public_key(), names, purpose), _key_pem(key))

    def _now(self) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self._clock.unix_s(), datetime.UTC)


def open_authority(folder: Path, clock: Clock) -> Authority:
    """The authority of this folder, made at first use; of two that make it at once, both get the first one's.

    The key is only ours to read; roots.pem beside it is for whoever wants to trust it.
    Raises BadRequest when the file is there and not usable, DiskFull when it cannot be written.
    """
    file = folder / FILE_NAME
    try:
        if not file.exists():
            _create(file, clock)
        if file.stat().st_mode & 0o077:
            log.warning("others could read the key of the certificate authority; closed now", file=str(file))
            file.chmod(0o600)
        authority = _read(file, clock)
        _write_roots(folder / ROOTS_NAME, authority.roots)
    except OSError as error:
        raise DiskFull(f"{file}: {(error.strerror or str(error)).lower()}", path=file) from None
    return authority


def not_after_s(certificate: bytes) -> float:
    """When a PEM certificate ends, Unix seconds."""
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc.timestamp()


def _create(file: Path, clock: Clock) -> None:
    """Write a new authority, whole or not at all; one that is there already stays."""
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.fromtimestamp(clock.unix_s(), datetime.UTC)
    name = _subject(f"SilentSwarm root {secrets.token_hex(4)}")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    root = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(seconds=BACKDATED_S))
        .not_valid_after(now + datetime.timedelta(seconds=ROOT_LIFETIME_S))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = _key_pem(key) + root.public_bytes(serialization.Encoding.PEM)
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(pem)
            stream.flush()
            os.fsync(stream.fileno())
        with contextlib.suppress(FileExistsError):  # another process was first; both use its authority
            file.hardlink_to(fresh)
        _sync_folder(file.parent)
    finally:
        fresh.unlink(missing_ok=True)


def _read(file: Path, clock: Clock) -> Authority:
    pem = file.read_bytes()
    try:
        key = serialization.load_pem_private_key(pem, password=None)
        root = x509.load_pem_x509_certificate(pem)
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != root.public_key():
            raise ValueError("its key is not its root's")
    except (ValueError, TypeError) as error:
        raise BadRequest(
            f"{file} is no certificate authority of this leader ({error}); put the right file back, or move it away "
            "for a new authority, which every machine then has to be told",
            field="SWARM_DATA_DIR",
        ) from None
    left_s = root.not_valid_after_utc.timestamp() - clock.unix_s()
    if left_s < LEAF_LIFETIME_S:
        log.warning("the root of this swarm's certificates ends within a year", days=int(left_s / DAY_S))
    return Authority(key, root, clock)


def _write_roots(file: Path, roots: bytes) -> None:
    """A copy of the root for people; rewritten only when it differs."""
    if file.exists() and file.read_bytes() == roots:
        return
    fresh = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
    fresh.write_bytes(roots)
    fresh.chmod(0o644)
    fresh.rename(file)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _subject(name: str) -> x509.Name:
    """Clients read the alternative names; the subject is for people."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, name[:COMMON_NAME_MAX]),
        ]
    )


def _general_name(name: str) -> x509.GeneralName:
    """A DNS name or an IP address. Raises BadRequest for anything else."""
    with contextlib.suppress(ValueError):
        return x509.IPAddress(ipaddress.ip_address(name.strip("[]")))
    if len(name) > 253 or not DNS_NAME.fullmatch(name):
        raise BadRequest(f"{name[:80]!r} is neither a DNS name nor an IP address", field="names")
    return x509.DNSName(name.lower())


def _key_usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
