"""How a client knows its leader: a file of roots, a pin, or the system's roots. Sends no secret."""

import asyncio
import hmac
import re
import socket
import ssl
from pathlib import Path

import grpc
from silentswarm.leader.v1 import trust_pb2, trust_pb2_grpc
from swarm_core.errors import BadRequest, PermissionDenied, SwarmError, Unavailable
from swarm_core.listen import is_loopback, split_host_port

from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of
from swarm_rpc.tls import LEADER_NAME, Trust, check_roots, is_own_root, read_roots, sha256_of_root
from swarm_rpc.tls_words import why_unreachable

VARIABLE = "SWARM_LEADER_CA"
SYSTEM = "system"
PIN_PREFIX = "sha256:"
BOOTSTRAP_TIMEOUT_S = 10.0
ROOTS_BYTES_MAX = 64 * 1024
_PIN = re.compile(r"[0-9a-f]{64}")


def pin_of(text: str) -> str:
    """The pin in "sha256:<hex>" or behind the last "." of a join token, lower case; empty when there is none."""
    last = text.removeprefix(PIN_PREFIX) if text.startswith(PIN_PREFIX) else text.rpartition(".")[2]
    return last.lower() if _PIN.fullmatch(last.lower()) else ""


def check_leader_ca(leader_ca: str) -> None:
    """Refuse a SWARM_LEADER_CA that can mean nothing. Raises BadRequest."""
    if leader_ca.startswith(PIN_PREFIX):
        if not pin_of(leader_ca):
            raise BadRequest(f"{VARIABLE}={leader_ca}: a pin is {PIN_PREFIX} and 64 hex digits", field=VARIABLE)
    elif leader_ca and leader_ca != SYSTEM:
        _check_is_no_bare_pin(leader_ca)
        _read_file(leader_ca)


def check_plaintext(address: str, allow_insecure: bool) -> None:
    """Refuse to send a secret to another machine without TLS. Raises BadRequest that says the ways out."""
    if allow_insecure or is_loopback(split_host_port(address)[0]):
        return
    raise BadRequest(
        f"will not talk to {address} without TLS: a token or a prompt could be read on the way. Set {VARIABLE} (a PEM "
        f"file, {PIN_PREFIX}<hex> of the leader's root, or {SYSTEM}), or SWARM_ALLOW_INSECURE=1 if the network is "
        "yours alone.",
        field=VARIABLE,
    )


async def trust_for(address: str, leader_ca: str) -> Trust | None:
    """What SWARM_LEADER_CA says; None is plaintext. Asks the leader only where a pin is all there is to go by.

    Raises BadRequest (the setting is wrong), and what `learn_roots` raises.
    """
    if not leader_ca:
        return None
    if leader_ca == SYSTEM:
        return Trust(await asyncio.to_thread(system_roots))
    if leader_ca.startswith(PIN_PREFIX):
        check_leader_ca(leader_ca)
        return await learn_roots(address, pin_of(leader_ca))
    _check_is_no_bare_pin(leader_ca)
    return trust_in(await asyncio.to_thread(_read_file, leader_ca))


def trust_in(roots: bytes) -> Trust:
    """Trust in roots from a file: a leader's own lead to its fixed name, others to the host that is dialled."""
    return Trust(roots, LEADER_NAME if is_own_root(roots) else "")


def system_roots() -> bytes:
    """The roots this system trusts, PEM. Raises BadRequest when it has none."""
    where = ssl.get_default_verify_paths()
    if where.cafile:
        return read_roots(Path(where.cafile), f"{VARIABLE}={SYSTEM}, that is ")
    raise BadRequest(f"{VARIABLE}={SYSTEM}: this system has no file of roots; name one", field=VARIABLE)


async def learn_roots(address: str, pin: str, timeout_s: float = BOOTSTRAP_TIMEOUT_S) -> Trust:
    """Ask the leader for its roots and believe them only when the first one's SHA-256 is `pin`.

    Nothing secret is sent: a channel to whatever certificate answers is used for this one public question.
    Raises PermissionDenied with both digests, Unavailable when nothing answers, or not in TLS.
    """
    try:
        async with asyncio.timeout(timeout_s):
            leaf = await asyncio.to_thread(_fetch_leaf, address, timeout_s)
            async with dial(address, trust=Trust(leaf, LEADER_NAME)) as channel:
                ask = trust_pb2_grpc.TrustStub(channel).GetRoots
                answer = await ask(trust_pb2.GetRootsRequest(), timeout=timeout_s)
    except grpc.RpcError as error:
        raise Unavailable(f"the leader at {address} did not tell its roots: {error_of(error).message}") from None
    except TimeoutError:
        raise Unavailable(f"the leader at {address} did not tell its roots within {timeout_s:g} s") from None
    if not answer.roots or len(answer.roots) > ROOTS_BYTES_MAX:
        raise _mismatch(address, pin, "no root")
    try:
        check_roots(answer.roots, f"what {address} answers")
        found = sha256_of_root(answer.roots)
    except (SwarmError, ValueError):
        raise _mismatch(address, pin, "no root") from None
    if not hmac.compare_digest(found, pin):
        raise _mismatch(address, pin, f"sha256:{found}")
    return Trust(answer.roots, LEADER_NAME)


def _check_is_no_bare_pin(leader_ca: str) -> None:
    if _PIN.fullmatch(leader_ca.lower()):
        raise BadRequest(
            f"{VARIABLE}: write {PIN_PREFIX} before these 64 digits, {PIN_PREFIX}{leader_ca}", field=VARIABLE
        )


def _read_file(leader_ca: str) -> bytes:
    return read_roots(Path(leader_ca).expanduser(), VARIABLE)


def _mismatch(address: str, pin: str, found: str) -> PermissionDenied:
    return PermissionDenied(
        f"{address} is not the leader that is expected: its root is {found}, the pin is sha256:{pin}. Nothing was sent "
        "to it. Somebody may be in between, or the leader's authority is new and so is its pin.",
        expected=pin,
        found=found,
    )


def _fetch_leaf(address: str, timeout_s: float) -> bytes:
    """Whatever certificate answers there, unverified, PEM. Raises Unavailable. Blocks."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, port = split_host_port(address)
    try:
        with (
            socket.create_connection((host, port), timeout_s) as plain,
            context.wrap_socket(plain, server_hostname=LEADER_NAME) as secured,
        ):
            certificate = secured.getpeercert(binary_form=True)
    except ssl.SSLError:
        words = why_unreachable(address, Trust(b""), VARIABLE)
        raise Unavailable(words or f"{address} breaks off the TLS handshake") from None
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Unavailable(f"nothing answers at {address} ({why})", address=address) from None
    if not certificate:
        raise Unavailable(f"{address} shows no certificate", address=address)
    return ssl.DER_cert_to_PEM_cert(certificate).encode()
