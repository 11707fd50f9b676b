"""Servers and certificates for tests of TLS: an authority, leaves of any age, a server that answers GetRoots."""

import datetime
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from silentswarm.leader.v1 import trust_pb2, trust_pb2_grpc
from swarm_core.clock import ManualClock, SystemClock
from swarm_leader.trust.authority import Authority, open_authority
from swarm_rpc.server import listen, make_server
from swarm_rpc.tls import LEADER_NAME, Identity, sha256_of_root

DAY_S = 86_400


class RootsServicer(trust_pb2_grpc.TrustServicer):
    """Tells the roots it is given, and counts and keeps what it is asked with."""

    def __init__(self, roots: bytes) -> None:
        self.roots = roots
        self.metadata: list[tuple[str, str]] = []
        self.peer_names: list[bytes] = []

    async def GetRoots(self, request, context: grpc.aio.ServicerContext):
        self.metadata += [(key, value) for key, value in context.invocation_metadata()]
        self.peer_names = list(context.auth_context().get("x509_subject_alternative_name", []))
        return trust_pb2.GetRootsResponse(roots=self.roots, sha256=sha256_of_root(self.roots))


@asynccontextmanager
async def serving(
    servicer: RootsServicer, credentials: grpc.ServerCredentials | None = None, address: str = "127.0.0.1:0"
) -> AsyncIterator[str]:
    """A server of leader.v1.Trust; gives its address."""
    server = make_server()
    trust_pb2_grpc.add_TrustServicer_to_server(servicer, server)
    port = listen(server, address, credentials)
    await server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await server.stop(0)


def make_authority(folder: Path, clock: ManualClock | SystemClock | None = None) -> Authority:
    """An authority of its own folder."""
    folder.mkdir(parents=True, exist_ok=True)
    return open_authority(folder, clock or SystemClock())


def aged_identity(folder: Path, offset_days: float, names: tuple[str, ...] = (LEADER_NAME,)) -> tuple[Identity, bytes]:
    """A leaf and roots as an authority whose clock is `offset_days` off would make them today."""
    clock = ManualClock(unix_s=SystemClock().unix_s() + offset_days * DAY_S)
    authority = make_authority(folder, clock)
    return authority.issue_identity(names), authority.roots


def self_signed(folder: Path, host: str = "127.0.0.1") -> tuple[Path, Path]:
    """Certificate and key files that no swarm made, for one address."""
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "an operator's own")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    (folder / "own.pem").write_bytes(certificate.public_bytes(encoding))
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "own.key").write_bytes(private)
    return folder / "own.pem", folder / "own.key"


async def ask(channel: grpc.aio.Channel, timeout_s: float = 5.0) -> trust_pb2.GetRootsResponse:
    """One GetRoots."""
    return await trust_pb2_grpc.TrustStub(channel).GetRoots(trust_pb2.GetRootsRequest(), timeout=timeout_s)
