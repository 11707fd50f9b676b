"""Tokens by which machines join: made, counted, ended. The operator's own, SWARM_JOIN_TOKEN, is beside them."""

import hmac
import secrets
from collections.abc import Callable

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest, Overloaded, Unauthenticated

from swarm_leader.domain import access
from swarm_leader.domain.ports import JoinTokenStore
from swarm_leader.domain.records import FellowRecord, JoinTokenRecord
from swarm_leader.flows.tokens import draw_secret

log = structlog.get_logger()
LIFE_S = 86_400
LABEL = "machines"
USES_MAX = 2**31 - 1
TOKENS_MAX = 10_000
OPERATORS = "SWARM_JOIN_TOKEN"  # the id of the one that is configured


class JoinTokens:
    """Every join token.

    operators: the one the leader was configured with, "" for none; it lets in any number, for ever. roots_sha256: of
    the root that this leader's certificates lead to, hex; "" when it speaks no TLS.
    """

    def __init__(
        self,
        store: JoinTokenStore,
        clock: Clock,
        operators: str,
        roots_sha256: Callable[[], str],
        draw: Callable[[str], str] = draw_secret,
    ) -> None:
        self._store = store
        self._clock = clock
        self._operators = access.digest_of(operators) if operators else ""
        self._roots_sha256 = roots_sha256
        self._draw = draw

    @property
    def is_configured(self) -> bool:
        """Whether the operator set one: then nobody joins without."""
        return bool(self._operators)

    async def create(self, label: str, expires_in_s: int, uses: int) -> tuple[JoinTokenRecord, str]:
        """A new join token and its secret. expires_in_s 0: a day; uses 0: one. Raises BadRequest, DiskFull."""
        label = access.check_label(label) if label.strip() else LABEL
        life_s = access.check_life(expires_in_s) or LIFE_S
        if uses > USES_MAX:
            raise BadRequest(f"uses is {uses}; at most {USES_MAX}", field="uses")
        now_s = self._clock.unix_s()
        await self._store.prune(int(now_s) - access.PRUNE_S)
        if len(await self._store.all()) >= TOKENS_MAX:
            raise Overloaded(f"there are {TOKENS_MAX} join tokens, which is the most; revoke some", tokens=TOKENS_MAX)
        secret = self._draw(access.JOIN_PREFIX)
        token = JoinTokenRecord(
            join_token_id=f"join-{secrets.token_hex(8)}",
            digest=access.digest_of(secret),
            label=label,
            created_s=int(now_s),
            expires_s=access.end_of(now_s, life_s),
            uses_left=uses or 1,
        )
        await self._store.add(token)
        log.info("join token made", token=token.join_token_id, uses=token.uses_left)
        pin = self._roots_sha256()
        return token, f"{secret}.{pin}" if pin else secret

    async def all(self) -> list[JoinTokenRecord]:
        """Those that can still be used or were used, newest first."""
        now_s = self._clock.unix_s()
        return [token for token in await self._store.all() if access.is_shown(token, now_s)]

    async def revoke(self, join_token_id: str) -> None:
        """End one; machines that joined by it stay. Raises BadRequest when there is none, DiskFull."""
        if not await self._store.revoke(join_token_id, int(self._clock.unix_s())):
            raise BadRequest(
                f"no join token {join_token_id!r}; `swarm join-token list` shows them", field="join_token_id"
            )
        log.info("join token revoked", token=join_token_id)

    async def admit(self, presented: str, known: FellowRecord | None) -> str:
        """Let a machine in: takes one use and returns the token's id. Raises Unauthenticated.

        known: the machine's record when it had joined before. One that was let in by this very token and never used
        its credential has not got the answer, and takes no second use.
        """
        if len(presented) > access.SECRET_MAX:
            raise _refuse()
        for secret in access.join_secrets(presented):
            digest = access.digest_of(secret)
            if self._operators and hmac.compare_digest(self._operators, digest):
                return OPERATORS
            token = await self._store.by_digest(digest) if secret.startswith(access.JOIN_PREFIX) else None
            if token is None or not hmac.compare_digest(token.digest, digest):
                continue
            now_s = int(self._clock.unix_s())
            is_again = known is not None and not known.deleted and known.joined_by == token.join_token_id
            if is_again and token.revoked_s is None and token.expires_s > now_s:
                return token.join_token_id
            if await self._store.use(token.join_token_id, now_s):
                return token.join_token_id
        raise _refuse()


def _refuse() -> Unauthenticated:
    return Unauthenticated(
        "the join token is missing, wrong, used up or over. An admin makes one with `swarm join-token create`; "
        "the fellow gets it as SWARM_JOIN_TOKEN"
    )
