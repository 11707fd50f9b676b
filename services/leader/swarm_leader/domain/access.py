"""Who may do what: scopes, the forms of secrets, and which token counts when. Pure: draws no secret, reads no clock."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass

from swarm_core.errors import BadRequest, PermissionDenied, Unauthenticated

from swarm_leader.domain.records import ApiTokenRecord, JoinTokenRecord

API_PREFIX = "sk-swarm-"
NODE_PREFIX = "sk-node-"
JOIN_PREFIX = "swarm-join-"
SCOPES = ("read", "operate", "admin")  # each includes those before it
PRUNE_S = 31 * 86_400  # what is over for so long is forgotten
LIFE_S_MAX = 100 * 366 * 86_400
LABEL_MAX = 100
SECRET_MAX = 256  # characters; ours have about 60
# One answer for a token that is missing, unknown, expired or revoked: whoever guesses learns nothing.
NO_TOKEN = (
    "this leader asks for a token: present a valid one as `authorization: Bearer sk-swarm-...`; "
    "an admin makes one with `swarm tokens create`"
)
NO_CREDENTIAL = "this call is for machines of the fleet: it needs the credential this machine was given when it joined"


@dataclass(frozen=True)
class Principal:
    """Whom a call is made by. token_id: of a person or program; fellow_id: of a machine; both "": nobody known."""

    token_id: str = ""
    scopes: tuple[str, ...] = ()
    fellow_id: str = ""


NOBODY = Principal()


def digest_of(secret: str) -> str:
    """What is kept of a secret: SHA-256, hex. They are 256 random bits, so nothing slower is needed."""
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def check_scopes(scopes: Sequence[str]) -> tuple[str, ...]:
    """The scopes, each once, lowest first. Raises BadRequest."""
    wrong = [scope for scope in scopes if scope not in SCOPES]
    if wrong or not scopes:
        told = f"{wrong[0]!r} is none" if wrong else "there are none"
        raise BadRequest(f"scopes: {told}; use one or more of {', '.join(SCOPES)}", field="scopes")
    return tuple(scope for scope in SCOPES if scope in scopes)


def check_label(label: str) -> str:
    """The label without space around it. Raises BadRequest."""
    label = label.strip()
    if not 0 < len(label) <= LABEL_MAX or not label.isprintable():
        raise BadRequest(f"a label has 1..{LABEL_MAX} printable characters", field="label")
    return label


def check_life(expires_in_s: int) -> int:
    """Seconds a token holds. Raises BadRequest."""
    if expires_in_s > LIFE_S_MAX:
        raise BadRequest(f"expires_in_s is {expires_in_s}; at most {LIFE_S_MAX}, or 0", field="expires_in_s")
    return expires_in_s


def end_of(now_s: float, life_s: int) -> int:
    """The second a token ends at. Rounded up: it holds at least as long as was asked, and less than a second more."""
    return math.ceil(now_s + life_s)


def check_allowed(scopes: Sequence[str], needed: str) -> None:
    """Raises PermissionDenied, naming the scope that is needed, when none of `scopes` includes it."""
    if not any(SCOPES.index(scope) >= SCOPES.index(needed) for scope in scopes):
        has = " and ".join(scopes)
        raise PermissionDenied(f"this needs a token with the scope {needed}; yours has {has}", scope=needed)


def refuse_token() -> Unauthenticated:
    """The one answer to a token that opens nothing."""
    return Unauthenticated(NO_TOKEN)


def is_usable(token: ApiTokenRecord, now_s: float) -> bool:
    """Whether it opens anything."""
    return token.revoked_s is None and (token.expires_s is None or token.expires_s > now_s)


def enforces(token: ApiTokenRecord, now_s: float) -> bool:
    """Whether tokens are asked for because of it: an expired one counts until it is pruned, a revoked one never."""
    return token.revoked_s is None and not token.by_leader and not is_over(token, now_s)


def is_over(token: ApiTokenRecord, now_s: float) -> bool:
    """Whether it is to be forgotten."""
    ends = [end_s for end_s in (token.expires_s, token.revoked_s) if end_s is not None]
    return bool(ends) and min(ends) + PRUNE_S <= now_s


def is_shown(token: JoinTokenRecord, now_s: float) -> bool:
    """Whether a join token can still be used or was used."""
    can_be_used = token.revoked_s is None and token.expires_s > now_s and token.uses_left != 0
    return can_be_used or token.used > 0


def join_secrets(presented: str) -> tuple[str, ...]:
    """What a presented join token may mean: itself, and itself without the pin of a root behind its last "."."""
    secret, dot, pin = presented.rpartition(".")
    is_pinned = dot and len(pin) == 64 and not set(pin.lower()) - set("0123456789abcdef")
    return (presented, secret) if is_pinned else (presented,)
