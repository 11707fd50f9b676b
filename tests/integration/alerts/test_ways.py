"""Alerts leave: to a real HTTPS and a real mail server, tried again, signed, and to nowhere they should not go."""

import asyncio
import contextlib
import datetime
import hashlib
import hmac
import http.server
import ipaddress
import json
import socketserver
import ssl
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from swarm_core.clock import ManualClock
from swarm_core.egress import make_door
from swarm_core.errors import Unavailable
from swarm_leader.domain.telemetry_records import NodeEvent
from swarm_leader.telemetry.alert_ways import Email, Webhook
from swarm_leader.telemetry.alerting import Alerting
from swarm_leader.telemetry.alerts import Alert

LOST = NodeEvent(1000.5, "main", "f1", "kitchen", "lost", "no heartbeat for 9 s \N{HOUSE BUILDING}")
ALERT = Alert(LOST)
WAIT_S = 10.0


@dataclass
class Got:
    """What a server was sent."""

    requests: list[tuple[str, dict[str, str], bytes]] = field(default_factory=list)
    mails: list[str] = field(default_factory=list)
    statuses: list[int] = field(default_factory=list)  # answered first; then 204
    location: str = ""


@dataclass(frozen=True)
class Certified:
    """A certificate of 127.0.0.1, and who trusts it."""

    serves: ssl.SSLContext
    trusts: ssl.SSLContext


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> Certified:
    """Made anew for these tests."""
    folder: Path = tmp_path_factory.mktemp("tls")
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = builder.add_extension(host, critical=False).sign(key, hashes.SHA256())
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*form))
    (folder / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    serves = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serves.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return Certified(serves, ssl.create_default_context(cafile=str(folder / "cert.pem")))


@contextlib.contextmanager
def serving(server: socketserver.BaseServer) -> Iterator[int]:
    """A server in a thread; its port."""
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]  # type: ignore[index]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(WAIT_S)


@contextlib.contextmanager
def https(got: Got, certified: Certified) -> Iterator[str]:
    """An HTTPS server that keeps what it gets; its address."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.requests.append((self.path, dict(self.headers), body))
            self.send_response(got.statuses.pop(0) if got.statuses else 204)
            if got.location:
                self.send_header("Location", got.location)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.socket = certified.serves.wrap_socket(server.socket, server_side=True)
    with serving(server) as port:
        yield f"https://127.0.0.1:{port}/hook?a=1"


@contextlib.contextmanager
def mail_server(got: Got) -> Iterator[str]:
    """A mail server that takes everything and knows no TLS; its address."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 here\r\n")
            while line := self.rfile.readline():
                verb = line[:4].upper()
                if verb == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    letter = b""
                    while (text := self.rfile.readline()) not in (b".\r\n", b""):
                        letter += text
                    got.mails.append(letter.decode())
                self.wfile.write(b"250 ok\r\n" if verb != b"QUIT" else b"221 bye\r\n")

    with serving(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)) as port:
        yield f"127.0.0.1:{port}"


def test_a_webhook_gets_one_signed_document(certified: Certified):
    got = Got()
    with https(got, certified) as url:
        Webhook(url, "a secret", lambda: 1234.9, certified.trusts).send(ALERT)

    path, headers, body = got.requests[0]
    assert path == "/hook?a=1"
    assert json.loads(body) == {
        "title": "SilentSwarm: kitchen: lost",
        "words": LOST.words,
        "kind": "lost",
        "pool": "main",
        "fellow_id": "f1",
        "fellow_name": "kitchen",
        "at_s": 1000.5,
    }
    signed = hmac.new(b"a secret", b"1234." + body, hashlib.sha256).hexdigest()
    assert (headers["X-Swarm-Timestamp"], headers["X-Swarm-Signature"]) == ("1234", f"sha256={signed}")


def test_without_a_secret_nothing_is_signed(certified: Certified):
    got = Got()
    with https(got, certified) as url:
        Webhook(url, "", time.time, certified.trusts).send(ALERT)

    assert "X-Swarm-Signature" not in got.requests[0][1]


def test_a_redirect_is_a_failure_and_is_not_followed(certified: Certified):
    got, elsewhere = Got(statuses=[307]), Got()
    with https(got, certified) as url, https(elsewhere, certified) as other:
        got.location = other
        with pytest.raises(Unavailable, match="answered 307"):
            Webhook(url, "", time.time, certified.trusts).send(ALERT)

    assert elsewhere.requests == []


def test_a_name_that_comes_to_mean_another_machine_of_this_network_is_not_dialled(certified: Certified):
    """The operator's own host may be private; what its name is said to be later may not."""
    got = Got()
    with https(got, certified) as url:
        webhook = Webhook(url, "", time.time, certified.trusts)
        webhook._door = make_door(url, (), resolve=lambda host, port: {"10.1.2.3"})
        with pytest.raises(Unavailable, match="not of the public internet"):
            webhook.send(ALERT)

    assert got.requests == []


def test_a_server_whose_certificate_nobody_trusts_gets_nothing(certified: Certified):
    got = Got()
    with https(got, certified) as url, pytest.raises(Unavailable, match="certificate"):
        Webhook(url, "", time.time).send(ALERT)

    assert got.requests == []


def test_a_mail_has_who_what_and_why():
    got = Got()
    with mail_server(got) as address:
        Email(f"smtp://{address}", "ann@example.org, bob@example.org").send(ALERT)

    assert "Subject: SilentSwarm: kitchen: lost" in got.mails[0]
    assert "To: ann@example.org, bob@example.org" in got.mails[0]


def test_a_password_is_not_sent_where_there_is_no_tls():
    got = Got()
    with mail_server(got) as address, pytest.raises(Unavailable) as refusal:
        Email(f"smtp://swarm:hunter2@{address}", "ann@example.org").send(ALERT)

    assert got.mails == []
    assert "hunter2" not in refusal.value.message


async def test_an_alert_is_tried_again_and_one_way_that_fails_holds_up_no_other(certified: Certified):
    got = Got(statuses=[500, 503])
    with https(got, certified) as url, mail_server(got) as address:
        ways = [Webhook(url, "", time.time, certified.trusts), Email(f"smtp://{address}", "ann@example.org")]
        alerting = Alerting([Email("smtp://127.0.0.1:1", "x@example.org"), *ways], ManualClock(), waits_s=(0.01, 0.01))
        running = asyncio.create_task(alerting.run())
        alerting.take(LOST)
        alerting.take(LOST)  # the same again: told once
        async with asyncio.timeout(WAIT_S):
            while len(got.requests) < 3 or not got.mails:
                await asyncio.sleep(0.01)
        running.cancel()

    assert (len(got.requests), len(got.mails)) == (3, 1)
