"""Tokens of people and programs, and tokens by which machines join, as rows. Implements ports; judges none."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from swarm_leader.domain.records import ApiTokenRecord, JoinTokenRecord, TokenUsage
from swarm_leader.store.fellows import Transactions
from swarm_leader.store.schema import api_tokens, join_tokens
from swarm_leader.store.uncut import uncut
from swarm_leader.store.upsert import clean_text


class SqlTokenStore:
    """Implements domain.ports.TokenStore."""

    def __init__(self, database: Transactions) -> None:
        self.uncut = database.uncut
        self._database = database

    @uncut
    async def add(self, token: ApiTokenRecord) -> None:
        """A new token; durable when it returns. Raises Conflict when its id or digest exists."""
        row = asdict(token)
        row |= row.pop("usage") | {"label": clean_text(token.label), "scopes": list(token.scopes)}
        async with self._database.writing() as connection:
            await connection.execute(sa.insert(api_tokens).values(row))

    @uncut
    async def revoke(self, token_id: str, now_s: int) -> None:
        """End a token; the first time stands. Durable when it returns."""
        mine = (api_tokens.c.token_id == token_id) & api_tokens.c.revoked_s.is_(None)
        async with self._database.writing() as connection:
            await connection.execute(sa.update(api_tokens).where(mine).values(revoked_s=now_s))

    @uncut
    async def count(self, used: Mapping[str, TokenUsage], last_used_s: Mapping[str, int]) -> None:
        """Add to what tokens used, and say when they were last used, by token id; all or nothing, durable."""
        async with self._database.writing() as connection:
            for token_id in sorted(used.keys() | last_used_s.keys()):
                more = asdict(used.get(token_id, TokenUsage()))
                changes: dict[str, Any] = {name: api_tokens.c[name] + count for name, count in more.items() if count}
                if token_id in last_used_s:
                    changes["last_used_s"] = last_used_s[token_id]
                if changes:
                    mine = api_tokens.c.token_id == token_id
                    await connection.execute(sa.update(api_tokens).where(mine).values(changes))

    @uncut
    async def remove(self, token_ids: list[str]) -> None:
        """Forget tokens for good."""
        async with self._database.writing() as connection:
            await connection.execute(sa.delete(api_tokens).where(api_tokens.c.token_id.in_(token_ids)))

    @uncut
    async def all(self) -> list[ApiTokenRecord]:
        """Every token, newest first."""
        async with self._database.reading() as connection:
            rows = (await connection.execute(sa.select(api_tokens))).mappings().all()
        return sorted(map(_token_of, rows), key=lambda token: (-token.created_s, token.token_id))


class SqlJoinTokenStore:
    """Implements domain.ports.JoinTokenStore."""

    def __init__(self, database: Transactions) -> None:
        self.uncut = database.uncut
        self._database = database

    @uncut
    async def add(self, token: JoinTokenRecord) -> None:
        """A new join token; durable when it returns."""
        async with self._database.writing() as connection:
            row = asdict(token) | {"label": clean_text(token.label)}
            await connection.execute(sa.insert(join_tokens).values(row))

    @uncut
    async def by_digest(self, digest: str) -> JoinTokenRecord | None:
        """The token of this digest, whatever became of it."""
        async with self._database.reading() as connection:
            found = await connection.execute(sa.select(join_tokens).where(join_tokens.c.digest == digest))
            row = found.mappings().first()
        return JoinTokenRecord(**row) if row is not None else None

    @uncut
    async def use(self, join_token_id: str, now_s: int) -> bool:
        """Take one use, in one statement: of many who ask at once, as many get it as there are uses."""
        columns = join_tokens.c
        usable = (
            (columns.join_token_id == join_token_id)
            & columns.revoked_s.is_(None)
            & (columns.expires_s > now_s)
            & (columns.uses_left.is_(None) | (columns.uses_left > 0))
        )
        taken = sa.update(join_tokens).where(usable).values(used=columns.used + 1, uses_left=columns.uses_left - 1)
        async with self._database.writing() as connection:
            return (await connection.execute(taken)).rowcount == 1

    @uncut
    async def revoke(self, join_token_id: str, now_s: int) -> bool:
        """End it; the first time stands. False when there is none. Durable when it returns."""
        mine = join_tokens.c.join_token_id == join_token_id
        first = sa.func.coalesce(join_tokens.c.revoked_s, now_s)
        async with self._database.writing() as connection:
            ended = await connection.execute(sa.update(join_tokens).where(mine).values(revoked_s=first))
            return ended.rowcount == 1

    @uncut
    async def prune(self, before_s: int) -> None:
        """Forget those that expired or were revoked before then."""
        over = (join_tokens.c.expires_s < before_s) | (join_tokens.c.revoked_s < before_s)
        async with self._database.writing() as connection:
            await connection.execute(sa.delete(join_tokens).where(over))

    @uncut
    async def all(self) -> list[JoinTokenRecord]:
        """Every join token, newest first."""
        async with self._database.reading() as connection:
            rows = (await connection.execute(sa.select(join_tokens))).mappings().all()
        tokens = [JoinTokenRecord(**row) for row in rows]
        return sorted(tokens, key=lambda token: (-token.created_s, token.join_token_id))


def _token_of(row: Any) -> ApiTokenRecord:
    facts = dict(row)
    usage = TokenUsage(**{name: facts.pop(name) for name in asdict(TokenUsage())})
    return ApiTokenRecord(**facts | {"scopes": tuple(facts["scopes"]), "usage": usage})
