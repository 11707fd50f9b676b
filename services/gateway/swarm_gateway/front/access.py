"""Who asks, as the leader knows them, and what they may use. Keeps no token, only its digest, and that for seconds.

The leader checks every call by itself as well; what is kept here spares it the question before each of them.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace

from silentswarm.core.v1 import access_pb2
from silentswarm.leader.v1 import tokens_pb2
from swarm_core.errors import Overloaded, PermissionDenied, Reason, SwarmError, Unauthenticated, Unavailable

from swarm_gateway.callers import BEARER
from swarm_gateway.leader import Leader, LeaderTooOld, present

KNOWN_S = 3.0  # how long an answer is believed: what a revoked token may still do here, and nowhere else
STALE_S = 600.0  # how long while the leader is away: this gateway's figures are wanted most then
AWAY_S = 15.0  # how long a leader that did not answer is not asked about a caller who is believed
KEPT_MAX = 1024  # answers of each kind; the longest unused one goes first
ASKING_MAX = 64  # questions to the leader at once; made-up tokens cost one each
ANSWER_TIMEOUT_S = 5.0
TOKEN_CHARS_MAX = 512

_GET_SELF = tokens_pb2.DESCRIPTOR.services_by_name["Tokens"].methods_by_name["GetSelf"]
# Each scope includes those before it.
_SCOPES = {access_pb2.ACCESS_READ: "read", access_pb2.ACCESS_OPERATE: "operate", access_pb2.ACCESS_ADMIN: "admin"}
_ORDER = tuple(_SCOPES.values())


@dataclass(frozen=True)
class Visitor:
    """Whoever sent a request. is_known: by a token; while none is asked for nobody is, and everybody may do all."""

    is_known: bool = False
    token_id: str = ""
    scopes: frozenset[str] = frozenset()

    def check(self, access: int) -> None:
        """Raises PermissionDenied that names the scope this access class needs."""
        if not self.is_known or access == access_pb2.ACCESS_PUBLIC:
            return
        needed = _SCOPES.get(access)
        if needed is None or not self.scopes.intersection(_ORDER[_ORDER.index(needed) :]):
            needed = needed or "admin"
            held = ", ".join(scope for scope in _ORDER if scope in self.scopes) or "none"
            raise PermissionDenied(f"this needs the scope {needed!r}; the token has: {held}", scope=needed)


ANYBODY = Visitor()


@dataclass(frozen=True)
class _Answer:
    visitor: Visitor | None  # None: unknown
    until_s: float  # when to ask again
    stale_s: float  # when not to believe it even without another answer


class Doorkeeper:
    """Asks the leader who a token belongs to. now_s: a clock that only grows."""

    def __init__(self, leader: Leader, now_s: Callable[[], float]) -> None:
        self._leader = leader
        self._now_s = now_s
        self._welcome: OrderedDict[bytes, _Answer] = OrderedDict()
        # Apart, so that no flood of made-up tokens pushes out the real ones.
        self._unknown: OrderedDict[bytes, _Answer] = OrderedDict()
        self._asking: dict[bytes, asyncio.Task[Visitor]] = {}

    async def admit(self, authorizations: list[str]) -> Visitor:
        """Who sent these Authorization headers; their token goes with every call to the leader from now on.

        Raises Unauthenticated, in the same words whatever is wrong with the token; Unavailable while the leader is
        away; Overloaded when too many are being asked about.
        """
        token = token_of(authorizations)
        visitor = await self._visitor(token or "")
        if visitor.is_known and not token:
            raise unauthenticated()
        present(token or "")
        return visitor

    def forget(self, authorizations: list[str]) -> None:
        """The leader has refused this token meanwhile: ask again next time."""
        digest = _digest(token_of(authorizations) or "")
        self._welcome.pop(digest, None)

    async def _visitor(self, token: str) -> Visitor:
        digest = _digest(token)
        for answers in (self._welcome, self._unknown):
            answer = answers.get(digest)
            if answer is not None and self._now_s() < answer.until_s:
                answers.move_to_end(digest)
                return _welcomed(answer.visitor)
        asking = self._asking.get(digest)
        if asking is None:
            if len(self._asking) >= ASKING_MAX:
                known = self._welcome.get(digest)
                if known is not None and self._now_s() < known.stale_s:
                    return _welcomed(known.visitor)  # no flood of strangers keeps out who was let in before
                raise Overloaded("too many tokens are being looked up")
            asking = self._asking[digest] = asyncio.create_task(self._ask(token, digest))
            asking.add_done_callback(lambda task: self._asked(digest, task))
        # Whoever asked first may leave; the others still want to know.
        return await asyncio.shield(asking)

    def _asked(self, digest: bytes, task: asyncio.Task[Visitor]) -> None:
        self._asking.pop(digest, None)
        if not task.cancelled():
            task.exception()  # told to whoever waits; nobody may

    async def _ask(self, token: str, digest: bytes) -> Visitor:
        present(token)
        try:
            visitor = await self._ask_leader()
        except Unavailable:
            stale = self._welcome.get(digest)
            if stale is None or self._now_s() >= stale.stale_s:
                raise
            self._welcome[digest] = replace(stale, until_s=self._now_s() + AWAY_S)
            return _welcomed(stale.visitor)
        keep, drop = (self._unknown, self._welcome) if visitor is None else (self._welcome, self._unknown)
        drop.pop(digest, None)
        now_s = self._now_s()
        keep[digest] = _Answer(visitor, now_s + KNOWN_S, now_s + STALE_S)
        keep.move_to_end(digest)
        while len(keep) > KEPT_MAX:
            keep.popitem(last=False)
        return _welcomed(visitor)

    async def _ask_leader(self) -> Visitor | None:
        """None for an unknown token. Raises Unavailable when there is no answer."""
        try:
            answer = await self._leader.call(_GET_SELF, tokens_pb2.GetSelfRequest(), ANSWER_TIMEOUT_S)
        except LeaderTooOld:
            return ANYBODY
        except SwarmError as error:
            if error.why is Reason.UNAUTHENTICATED:
                return None
            if error.why is Reason.PERMISSION_DENIED:
                return Visitor(is_known=True)  # known, and may use nothing of this
            if error.why is Reason.DEADLINE:
                raise Unavailable(error.message) from None
            raise
        assert isinstance(answer, tokens_pb2.GetSelfResponse)
        if not answer.enforced:
            return ANYBODY
        return Visitor(True, answer.token.token_id, frozenset(answer.token.scopes)) if answer.token.token_id else None


def token_of(authorizations: list[str]) -> str | None:
    """The bearer token of a request; None when there is none, more than one, or one that no token can be."""
    if len(authorizations) != 1 or authorizations[0][: len(BEARER)].lower() != BEARER:
        return None
    token = authorizations[0][len(BEARER) :].strip()
    is_plain = token.isascii() and token.isprintable() and " " not in token
    return token if is_plain and 0 < len(token) <= TOKEN_CHARS_MAX else None


def unauthenticated() -> Unauthenticated:
    """The one refusal of whoever is not known."""
    return Unauthenticated("no such token")


def _welcomed(visitor: Visitor | None) -> Visitor:
    if visitor is None:
        raise unauthenticated()
    return visitor


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()
