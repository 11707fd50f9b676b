"""Whose request this is, as one opaque word: callers share a ring by it. Authenticates nobody.

The word is made of the bearer credential when there is one, else of the client's address, and of nothing else: whatever
a client may choose freely (OpenAI's `user`, a request id, a header of a proxy, a port) would let it be many callers and
take many shares. While no tokens are checked a credential can be made up as well; where that matters, listen on this
machine only. Behind a proxy every client without a credential is one caller, for the address is the proxy's.
"""

import hashlib
import hmac
import ipaddress

BEARER = "bearer "
FINGERPRINT_CHARS = 16  # 64 bits: no two of a swarm's callers meet
_DOMAIN = b"silentswarm caller 1"
_HOME_PREFIX = 64  # of IPv6: what one home gets, and may choose addresses from


def caller_of(authorization: str, address: str, secret: str) -> str:
    """The caller's fingerprint, hex; the same for the same credential, on every gateway with the same secret.

    authorization: that header, or "". address: of the peer, or "" when unknown. secret: keeps fellows, which see the
    fingerprint, from guessing an address back.
    """
    credential = authorization[len(BEARER) :].strip() if authorization[: len(BEARER)].lower() == BEARER else ""
    whose = f"credential {credential}" if credential else f"address {_home_of(address)}"
    word = hmac.new(_DOMAIN + secret.encode(), whose.encode("utf-8", "surrogateescape"), hashlib.sha256)
    return word.hexdigest()[:FINGERPRINT_CHARS]


def _home_of(address: str) -> str:
    """The address, or what its owner may choose it from."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, _HOME_PREFIX), strict=False))
    return str(parsed)
