"""Why two sides do not come together, in words, as far as TLS is to blame. Only for failures: it dials once more."""

import asyncio
import datetime
import socket
import ssl

from swarm_core.listen import split_host_port

from swarm_rpc.tls import Trust, sha256_of_root

PROBE_TIMEOUT_S = 3.0
SETTING = "SWARM_LEADER_CA"
# Numbers of OpenSSL (X509_V_ERR_*).
_NOT_YET_VALID, _EXPIRED, _OTHER_NAMES = 9, 10, {62, 63, 64}


async def explain(address: str, trust: Trust | None, setting: str = SETTING) -> str:
    """As `why_unreachable`, off the loop."""
    return await asyncio.to_thread(why_unreachable, address, trust, setting)


def why_unreachable(address: str, trust: Trust | None, setting: str = SETTING) -> str:
    """Why a channel with this trust does not come up; empty when TLS is not to blame. Blocks, 3 s at most each way.

    trust: None is a client without TLS. setting: the variable to name in advice.
    """
    if address.startswith("unix:"):
        return ""
    host, port = split_host_port(address)
    context = _context(trust)
    try:
        with (
            socket.create_connection((host, port), PROBE_TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=(trust.name if trust else "") or host) as secured,
        ):
            secured.getpeercert(binary_form=True)
    except ssl.SSLCertVerificationError as error:
        assert trust is not None
        return _certificate_words(address, trust, error, setting)
    except (ssl.SSLError, ConnectionResetError):
        speaks_no_tls = (
            f"{address} does not speak TLS, and this client does: start the other side with SWARM_TLS=1, or remove "
            f"{setting} if it is meant to be reached without"
        )
        return speaks_no_tls if trust is not None else ""
    except OSError:
        return ""
    if trust is None:
        return (
            f"{address} speaks TLS, and this client does not: set {setting} to the leader's roots (a PEM file, "
            "sha256:<hex>, or system)"
        )
    return ""


def _context(trust: Trust | None) -> ssl.SSLContext:
    """Verifies as grpc does; without trust it only asks whether TLS is spoken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    if trust is None or not trust.roots:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(cadata=trust.roots.decode("ascii"))
    return context


def _certificate_words(address: str, trust: Trust, error: ssl.SSLCertVerificationError, setting: str) -> str:
    now = datetime.datetime.now(datetime.UTC)
    clock = f"the clock here says {now:%Y-%m-%d %H:%M} UTC"
    if error.verify_code == _EXPIRED:
        return f"the certificate of {address} has expired; {clock}"
    if error.verify_code == _NOT_YET_VALID:
        return f"the certificate of {address} is not valid yet; {clock}"
    if error.verify_code in _OTHER_NAMES:
        wanted = trust.name or split_host_port(address)[0]
        return f"the certificate of {address} is for another name than {wanted}"
    return (
        f"the certificate of {address} does not lead to a root that {setting} trusts "
        f"(sha256:{sha256_of_root(trust.roots)} and what follows it): {error.verify_message}"
    )
