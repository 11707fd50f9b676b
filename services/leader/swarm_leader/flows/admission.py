"""Whether a machine may register, and by what: its own credential, a join token, or nothing where all is open."""

from collections.abc import Callable
from dataclasses import dataclass, field

import structlog
from swarm_core.errors import PermissionDenied, Unauthenticated

from swarm_leader.domain.access import NODE_PREFIX, Principal, digest_of
from swarm_leader.domain.records import FellowRecord
from swarm_leader.flows.join_tokens import JoinTokens
from swarm_leader.flows.tokens import draw_secret

log = structlog.get_logger()


@dataclass(frozen=True)
class Admission:
    """What a fellow's record says of its credential from now on. credential: a new secret; "": the one it has stays."""

    credential_sha256: str
    is_confirmed: bool
    joined_by: str
    credential: str = field(default="", repr=False)


class Admissions:
    """Judges who registers. is_open: whether machines may join without a token now."""

    def __init__(
        self,
        join_tokens: JoinTokens,
        is_open: Callable[[], bool],
        draw: Callable[[str], str] = draw_secret,
    ) -> None:
        self._join_tokens = join_tokens
        self._is_open = is_open
        self._draw = draw

    def check_itself(self, known: FellowRecord | None, principal: Principal) -> None:
        """A credential speaks for its own machine only, and a machine that has used one for itself by nothing else.

        known: the record of the identity that registers. Raises PermissionDenied, Unauthenticated.
        """
        if principal.fellow_id:
            if known is None or known.fellow_id != principal.fellow_id:
                raise PermissionDenied("this credential is another machine's: a fellow registers as itself only")
            return
        if known is not None and not known.deleted and known.credential_confirmed:
            log.warning("a known machine without its credential is refused", fellow=known.name)
            raise Unauthenticated(
                f"machine {known.name} is known, and its credential is missing or wrong. If its state folder was lost, "
                f"an admin forgets it with `swarm fellows delete {known.name}` and it joins again with a join token",
                fellow=known.name,
            )

    async def admit(self, known: FellowRecord | None, principal: Principal, join_token: str) -> Admission:
        """Let it in, once check_itself has nothing against it; takes a use of a join token. Raises Unauthenticated."""
        if known is not None and principal.fellow_id:
            return Admission(known.credential_sha256, True, known.joined_by)
        joined_by = ""
        if join_token or not self._may_go_without():
            joined_by = await self._by_token(join_token, known)
        secret = self._draw(NODE_PREFIX)
        return Admission(digest_of(secret), False, joined_by, secret)

    async def _by_token(self, join_token: str, known: FellowRecord | None) -> str:
        try:
            return await self._join_tokens.admit(join_token, known)
        except Unauthenticated:
            if self._may_go_without():
                return ""  # a token that opens nothing, where nothing is locked
            raise

    def _may_go_without(self) -> bool:
        return self._is_open() and not self._join_tokens.is_configured
