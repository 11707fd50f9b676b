"""Headers every reply carries: what browsers must not do with it, and who may read it. Decides no access."""

import re
import uuid

from multidict import CIMultiDict

# For what is no page; a page brings its own policy.
_POLICY = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
_SAFE = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",  # replies hold conversations and, once, secrets; static files say otherwise themselves
}
_READABLE = "x-request-id, x-should-retry, Retry-After, WWW-Authenticate"
_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+(?:\s*,\s*[A-Za-z0-9!#$%&'*+.^_`|~-]+)*")
PREFLIGHT_AGE_S = 600
NAME_HEADER = "x-request-id"


def new_name() -> str:
    """What a request is called in logs and replies when its client did not say."""
    return f"req_{uuid.uuid4().hex}"


def add_safety(headers: CIMultiDict[str]) -> None:
    """What a reply must have and does not say otherwise."""
    for name, value in _SAFE.items():
        headers.setdefault(name, value)
    headers["Server"] = "silentswarm"  # not the library's versions


def add_cross_origin(headers: CIMultiDict[str], origin: str) -> None:
    """Let a page of this origin, which was allowed, read the reply. "" is no page."""
    headers.add("Vary", "Origin")
    if origin:
        headers["Access-Control-Allow-Origin"] = origin
        headers["Access-Control-Expose-Headers"] = _READABLE


def preflight_headers(asked_headers: str, is_private: bool) -> dict[str, str]:
    """What an allowed page may send. asked_headers: what it asked for; is_private: it is on a more public network."""
    headers = {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": str(PREFLIGHT_AGE_S)}
    if _HEADER_NAMES.fullmatch(asked_headers.strip()):
        headers["Access-Control-Allow-Headers"] = asked_headers.strip()
    if is_private:
        headers["Access-Control-Allow-Private-Network"] = "true"
    return headers
