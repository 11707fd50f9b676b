"""Who calls, and whether they may: credentials from metadata, judged by the class of the RPC. Knows no servicer."""

from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar

import grpc
from silentswarm.core.v1 import access_pb2
from swarm_core.errors import PermissionDenied, Unauthenticated
from swarm_rpc.interceptors import End, Grant

from swarm_leader.domain.access import (
    NO_CREDENTIAL,
    NOBODY,
    NODE_PREFIX,
    SECRET_MAX,
    Principal,
    check_allowed,
    digest_of,
    refuse_token,
)
from swarm_leader.flows.calls import OpenCalls
from swarm_leader.flows.registry import Fellow, Registry
from swarm_leader.flows.tokens import Tokens

_SCOPES = {access_pb2.ACCESS_READ: "read", access_pb2.ACCESS_OPERATE: "operate", access_pb2.ACCESS_ADMIN: "admin"}
# Their first message proves who calls: a join token, or a relay's ticket.
_PROVEN_INSIDE = {"/silentswarm.fellow.v1.FellowLink/Connect", "/silentswarm.relay.v1.Relay/Attach"}
TOKEN_CALLS_MAX = 1024  # of one token at once; a gateway makes all calls of its users with theirs
NODE_CALLS_MAX = 128  # of one machine; it has two links and fetches what it loads
_principal: ContextVar[Principal] = ContextVar("principal", default=NOBODY)


def current_caller() -> Principal:
    """Whom the call that is answered now is made by."""
    return _principal.get()


class Access:
    """Judges every call of the leader's port. confirm: told of a machine's first use of its own."""

    def __init__(
        self,
        tokens: Tokens,
        registry: Registry,
        calls: OpenCalls,
        confirm: Callable[[Fellow], Awaitable[None]],
    ) -> None:
        self._tokens = tokens
        self._registry = registry
        self._calls = calls
        self._confirm = confirm

    async def authorize(self, access: int, details: grpc.HandlerCallDetails) -> Grant | None:
        """Let the call be made, and remember by whom. Raises Unauthenticated, PermissionDenied."""
        if access == access_pb2.ACCESS_PUBLIC:
            return None
        bearer = bearer_of(details.invocation_metadata or ())
        if access == access_pb2.ACCESS_NODE:
            principal = await self._machine(details.method, bearer)
            owner, calls_max = principal.fellow_id, NODE_CALLS_MAX
        else:
            principal = self._person(_SCOPES[access], bearer)
            owner, calls_max = principal.token_id, TOKEN_CALLS_MAX
        _principal.set(principal)
        if not owner:
            return None

        def grant(end: End) -> Callable[[], None]:
            return self._calls.begin(owner, calls_max, end)

        return grant

    def _person(self, needed: str, bearer: str) -> Principal:
        """Whose token it is; nobody's where none is asked for."""
        if not self._tokens.enforced:
            return NOBODY
        token = self._tokens.find(bearer) if bearer else None
        if token is None:
            if self._fellow_of(bearer) is not None:
                raise PermissionDenied(
                    f"a machine's credential opens only what machines call; this needs a token with the scope {needed}",
                    scope=needed,
                )
            raise refuse_token()
        check_allowed(token.scopes, needed)
        return Principal(token_id=token.token_id, scopes=token.scopes)

    async def _machine(self, method: str, bearer: str) -> Principal:
        """Which machine it is; nobody where its first message says."""
        fellow = self._fellow_of(bearer)
        if fellow is not None:
            if not fellow.record.credential_confirmed:
                await self._confirm(fellow)
            return Principal(fellow_id=fellow.fellow_id)
        if bearer and self._tokens.find(bearer) is not None:
            raise PermissionDenied("a token of people opens nothing that machines call")
        if method in _PROVEN_INSIDE:
            return NOBODY
        raise Unauthenticated(NO_CREDENTIAL)

    def _fellow_of(self, bearer: str) -> Fellow | None:
        return self._registry.by_credential(digest_of(bearer)) if bearer.startswith(NODE_PREFIX) else None


def check_own(principal: Principal, fellow_id: str) -> None:
    """A machine acts for itself only. Raises PermissionDenied."""
    if principal.fellow_id != fellow_id:
        raise PermissionDenied("this credential is another machine's: a fellow acts for itself only")


def bearer_of(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The secret of the one `authorization: Bearer ...`; "" when there is none, or none that could be ours."""
    given = [value for key, value in metadata if key == "authorization"]
    if len(given) != 1 or not isinstance(given[0], str):
        return ""
    scheme, _, secret = given[0].strip().partition(" ")
    secret = secret.strip()
    return secret if scheme.lower() == "bearer" and len(secret) <= SECRET_MAX else ""
