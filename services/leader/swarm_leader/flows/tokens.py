"""Tokens of people and programs: made, found, ended, counted. All in memory; the store has the digests and counts."""

import asyncio
import hmac
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest, Overloaded, SwarmError

from swarm_leader.domain import access
from swarm_leader.domain.ports import SecretFile, TokenStore
from swarm_leader.domain.records import ApiTokenRecord, TokenUsage
from swarm_leader.flows.calls import OpenCalls

log = structlog.get_logger()
TOKENS_MAX = 10_000
FLUSH_S = 5.0  # what a killed leader may forget of what was counted
MINUTE_S = 60
ADMIN_LABEL = "made by the leader"


def draw_secret(prefix: str) -> str:
    """A new secret: 256 random bits behind a prefix that says what it is for."""
    return prefix + secrets.token_urlsafe(32)


class Tokens:
    """Every token.

    is_required: asked for even when there is none. tell: told once the secret of an admin token that the leader made
    itself because nobody had one, and where it lies.
    """

    def __init__(
        self,
        store: TokenStore,
        admin_file: SecretFile,
        calls: OpenCalls,
        clock: Clock,
        is_required: bool,
        tell: Callable[[str, Path], None],
        draw: Callable[[str], str] = draw_secret,
    ) -> None:
        self._store = store
        self._admin_file = admin_file
        self._calls = calls
        self._clock = clock
        self._is_required = is_required
        self._tell = tell
        self._draw = draw
        self._tokens: dict[str, ApiTokenRecord] = {}
        self._ids: dict[str, str] = {}  # by digest
        self._used: dict[str, TokenUsage] = {}  # since the last flush
        self._seen_s: dict[str, int] = {}
        self._flushing = asyncio.Lock()
        self._making = asyncio.Lock()

    async def start(self) -> None:
        """Know every token again; make the first one when one is asked for and nobody has one. Raises SwarmErrors."""
        for token in reversed(await self._store.all()):
            self._know(token)
        secret = self._admin_file.read()
        if secret and self.find(secret) is None:
            self._admin_file.remove()
        await self.tidy()

    @property
    def enforced(self) -> bool:
        """Whether a token is asked for."""
        now_s = self._clock.unix_s()
        return self._is_required or any(access.enforces(token, now_s) for token in self._tokens.values())

    def find(self, secret: str) -> ApiTokenRecord | None:
        """The token of a secret, when it opens anything now."""
        digest = access.digest_of(secret)
        token = self._tokens.get(self._ids.get(digest, ""))
        # The digest of what somebody guesses says nothing about ours, and comparing takes as long whatever it is.
        if token is None or not hmac.compare_digest(token.digest, digest):
            return None
        now_s = self._clock.unix_s()
        if not access.is_usable(token, now_s):
            return None
        return self._see(token, int(now_s) // MINUTE_S * MINUTE_S)

    def get(self, token_id: str) -> ApiTokenRecord | None:
        """By id, with what it used until now."""
        return self._tokens.get(token_id)

    def all(self) -> list[ApiTokenRecord]:
        """Newest first, with what they used until now."""
        return list(reversed(self._tokens.values()))

    async def create(self, label: str, scopes: Sequence[str], expires_in_s: int) -> tuple[ApiTokenRecord, str]:
        """A new token and its secret, which is kept nowhere. expires_in_s 0: for ever. Raises BadRequest, DiskFull."""
        label, checked = access.check_label(label), access.check_scopes(scopes)
        life_s = access.check_life(expires_in_s)
        if len(self._tokens) >= TOKENS_MAX:
            raise Overloaded(f"there are {TOKENS_MAX} tokens, which is the most; revoke some", tokens=TOKENS_MAX)
        token, secret = await self._make(label, checked, life_s, by_leader=False)
        await self._keep_an_admin()
        return token, secret

    async def revoke(self, token_id: str) -> None:
        """End a token at once, and every reply of it that runs. Raises BadRequest when there is none, DiskFull."""
        token = self._tokens.get(token_id)
        if token is None:
            raise BadRequest(f"no token {token_id!r}; `swarm tokens list` shows them", field="token_id")
        now_s = int(self._clock.unix_s())
        if token.revoked_s is None:
            self._tokens[token_id] = replace(token, revoked_s=now_s)
            log.info("token revoked", token=token_id)
        self._calls.end_all(token_id, access.refuse_token())
        await self._store.revoke(token_id, now_s)
        secret = self._admin_file.read()
        if secret and access.digest_of(secret) == token.digest:
            self._admin_file.remove()
        await self._keep_an_admin()

    def take_use(self, token_id: str, used: TokenUsage) -> None:
        """A token used so much more. In memory until the next flush."""
        token = self._tokens.get(token_id)
        if token is not None:
            self._tokens[token_id] = replace(token, usage=token.usage + used)
            self._used[token_id] = self._used.get(token_id, TokenUsage()) + used

    async def flush(self) -> None:
        """Write what was counted. What cannot be written now is kept for the next time."""
        async with self._flushing:
            used, self._used = self._used, {}
            seen_s, self._seen_s = self._seen_s, {}
            if not used and not seen_s:
                return
            try:
                await self._store.count(used, seen_s)
            except SwarmError as error:
                for token_id, count in used.items():
                    self._used[token_id] = count + self._used.get(token_id, TokenUsage())
                self._seen_s = seen_s | self._seen_s
                log.warning("what tokens used cannot be written now", why=error.message)

    async def tidy(self) -> None:
        """Forget what is long over, and see that somebody can still get in. Raises SwarmErrors of the store."""
        now_s = self._clock.unix_s()
        over = [token.token_id for token in self._tokens.values() if access.is_over(token, now_s)]
        if over:
            await self._store.remove(over)
            for token_id in over:
                self._ids.pop(self._tokens.pop(token_id).digest, None)
        await self._keep_an_admin()

    def _know(self, token: ApiTokenRecord) -> None:
        self._tokens[token.token_id] = token
        self._ids[token.digest] = token.token_id

    def _see(self, token: ApiTokenRecord, minute_s: int) -> ApiTokenRecord:
        if token.last_used_s != minute_s:
            token = self._tokens[token.token_id] = replace(token, last_used_s=minute_s)
            self._seen_s[token.token_id] = minute_s
        return token

    async def _make(
        self, label: str, scopes: tuple[str, ...], life_s: int, by_leader: bool
    ) -> tuple[ApiTokenRecord, str]:
        secret, now_s = self._draw(access.API_PREFIX), self._clock.unix_s()
        token = ApiTokenRecord(
            token_id=f"tok-{secrets.token_hex(8)}",
            digest=access.digest_of(secret),
            label=label,
            scopes=scopes,
            created_s=int(now_s),
            expires_s=access.end_of(now_s, life_s) if life_s else None,
            by_leader=by_leader,
        )
        await self._store.add(token)
        self._know(token)
        log.info("token made", token=token.token_id, scopes=",".join(scopes))
        return token, secret

    async def _keep_an_admin(self) -> None:
        """Where tokens are asked for, somebody must be able to make one: else nobody ever gets in again."""
        async with self._making:
            now_s = self._clock.unix_s()
            admins = (one for one in self._tokens.values() if "admin" in one.scopes and access.is_usable(one, now_s))
            if not self.enforced or any(admins):
                return
            _, secret = await self._make(ADMIN_LABEL, access.SCOPES, 0, by_leader=True)
            self._admin_file.write(secret)
            self._tell(secret, self._admin_file.path)


async def keep_tokens(tokens: Tokens) -> None:
    """Write counts every few seconds and forget what is over, until cancelled."""
    while True:
        await asyncio.sleep(FLUSH_S)
        try:
            await tokens.flush()
            await tokens.tidy()
        except SwarmError as error:
            log.warning("tokens cannot be tidied now", why=error.message)
