"""HTTPS of the gateway: with the operator's certificate, changed while it runs, and refused when it cannot be used."""

import asyncio
import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from swarm_core.errors import BadRequest
from swarm_gateway.__main__ import read_config
from swarm_gateway.tls import ListenerCertificate

from tests.integration.gateway.test_gateway_process import start_process, url_of


def write_certificate(folder: Path, name: str, prefix: str = "") -> tuple[Path, Path]:
    """A self-signed certificate for 127.0.0.1 and its key; `name` tells it apart."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / f"{prefix}gateway.pem", folder / f"{prefix}gateway.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    form = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
    return paths


async def shown_name(url: str, context: ssl.SSLContext) -> bytes:
    """The certificate that answers there."""
    host, port = url.removeprefix("https://").partition("/")[0].split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=context)
    certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return certificate


async def test_it_speaks_tls_and_takes_a_new_certificate_while_it_runs(tmp_path):
    certificate, key = write_certificate(tmp_path, "first")
    settings = {"SWARM_GATEWAY_TLS_CERT": str(certificate), "SWARM_GATEWAY_TLS_KEY": str(key), "SWARM_LOG_JSON": "1"}
    process = await start_process("--port", "0", **settings)
    try:
        url = await url_of(process)
        trusting = ssl.create_default_context(cafile=str(certificate))
        async with aiohttp.ClientSession() as client:
            async with client.get(url.replace("/v1", "/healthz"), ssl=trusting) as response:
                assert response.status == 200
            with pytest.raises(aiohttp.ClientError):
                await client.get(url.replace("https://", "http://"))
            old = ssl.create_default_context(cafile=str(certificate))
            old.maximum_version = ssl.TLSVersion.TLSv1_1
            with pytest.raises(aiohttp.ClientError):
                await client.get(url, ssl=old)
        blind = ssl.create_default_context()
        blind.check_hostname, blind.verify_mode = False, ssl.CERT_NONE
        first = await shown_name(url, blind)
        write_certificate(tmp_path, "second")
        process.send_signal(1)  # SIGHUP
        async with asyncio.timeout(10):
            while await shown_name(url, blind) == first:
                await asyncio.sleep(0.05)
    finally:
        process.terminate()
        await process.communicate()

    assert url.startswith("https://")
    assert process.returncode == 0


def test_a_certificate_that_does_not_fit_changes_nothing(tmp_path):
    paths = write_certificate(tmp_path, "first")
    certificate = ListenerCertificate(*map(str, paths))
    assert not certificate.look()
    stranger = write_certificate(tmp_path, "other", prefix="other-")
    stranger[1].replace(paths[1])

    assert not certificate.look()  # the key of another
    paths[0].unlink()
    assert not certificate.look()
    write_certificate(tmp_path, "third")
    assert certificate.look()


@pytest.mark.parametrize("broken", ["missing", "garbage", "crossed"])
def test_a_certificate_that_cannot_be_used_is_a_sentence(tmp_path, broken):
    certificate, key = write_certificate(tmp_path, "first")
    if broken == "missing":
        key.unlink()
    elif broken == "garbage":
        certificate.write_text("no certificate")
    else:
        key = write_certificate(tmp_path, "other", prefix="other-")[1]

    with pytest.raises(BadRequest, match=f"SWARM_GATEWAY_TLS_CERT={certificate} with SWARM_GATEWAY_TLS_KEY={key}"):
        ListenerCertificate(str(certificate), str(key))


async def test_beyond_this_machine_it_listens_with_tls_only(tmp_path):
    certificate, key = write_certificate(tmp_path, "first")
    settings = {"SWARM_GATEWAY_TLS_CERT": str(certificate), "SWARM_GATEWAY_TLS_KEY": str(key), "SWARM_LOG_JSON": "1"}
    plain = await start_process("--port", "0", "--host", "0.0.0.0")
    _, words = await plain.communicate()
    process = await start_process("--port", "0", "--host", "0.0.0.0", **settings)
    try:
        url = await url_of(process)
    finally:
        process.terminate()
        await process.communicate()

    assert plain.returncode == 2 and b"TLS" in words
    assert url.startswith("https://0.0.0.0:")


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"SWARM_GATEWAY_TLS_CERT": "/a", "SWARM_GATEWAY_TLS_KEY": "/b"}, "cannot use SWARM_GATEWAY_TLS_CERT=/a"),
        ({"SWARM_LEADER": "leader.example:1"}, "SWARM_LEADER_CA"),
        ({"SWARM_LEADER_CA": "/nowhere.pem"}, "/nowhere.pem"),
        ({"SWARM_LEADER_CA": "sha256:12"}, "64 hex digits"),
    ],
)
async def test_settings_of_the_doors_that_cannot_be_meant_are_a_sentence(environ, words):
    process = await start_process("--port", "0", **environ)
    _, stderr = await asyncio.wait_for(process.communicate(), 20)

    assert process.returncode == 2
    assert words in stderr.decode()
    assert "Traceback" not in stderr.decode()


@pytest.mark.parametrize(
    ("environ", "words"),
    [
        ({"SWARM_GATEWAY_TLS_CERT": "/a"}, "set both or neither"),
        ({"SWARM_CORS_ORIGINS": "chat.example"}, "SWARM_CORS_ORIGINS: 'chat.example' is not an origin"),
        ({"SWARM_ALLOWED_HOSTS": "a b"}, "SWARM_ALLOWED_HOSTS: 'a b' is not a host name"),
    ],
)
def test_lists_and_pairs_are_looked_at_before_anything_starts(environ, words):
    with pytest.raises(BadRequest, match=words):
        read_config([], environ)


async def test_no_secret_is_in_its_arguments_or_logs():
    process = await start_process("--port", "0", SWARM_LOG_JSON="1")
    secret = "sk-swarm-0123456789abcdef"
    try:
        url = await url_of(process)
        async with aiohttp.ClientSession() as client:
            for path in (f"/{secret}", f"/models?token={secret}"):
                headers = {"Authorization": f"Bearer {secret}", "X-Request-Id": secret}
                async with client.get(url + path, headers=headers) as response:
                    assert secret not in await response.text()
        arguments = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    finally:
        process.terminate()
        _, stderr = await process.communicate()

    assert secret not in stderr.decode() and secret.encode() not in arguments
    assert "sk-swarm-***" in stderr.decode()
