"""Machines that ever joined, as rows. Implements domain.ports.FellowStore."""

from contextlib import AbstractAsyncContextManager
from dataclasses import asdict
from typing import Protocol

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection

from swarm_leader.domain.records import FellowRecord
from swarm_leader.store.schema import fellows
from swarm_leader.store.uncut import Uncut, uncut
from swarm_leader.store.upsert import clean_text, insert_or_replace


class Transactions(Protocol):
    """What a store needs of the database."""

    uncut: Uncut

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """One snapshot."""

    def writing(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """One durable transaction."""


class SqlFellowStore:
    """Fellows by id; an identity belongs to one fellow for good (a second one raises Conflict)."""

    def __init__(self, database: Transactions) -> None:
        self.uncut = database.uncut
        self._database = database

    @uncut
    async def save(self, fellow: FellowRecord) -> None:
        """Insert or replace by fellow_id; durable when it returns."""
        row = asdict(fellow) | {"name": clean_text(fellow.name), "version": clean_text(fellow.version)}
        async with self._database.writing() as connection:
            await connection.execute(insert_or_replace(connection.dialect.name, fellows, row))

    @uncut
    async def by_identity(self, identity: str) -> FellowRecord | None:
        """The machine with this identity, deleted ones included."""
        async with self._database.reading() as connection:
            found = await connection.execute(sa.select(fellows).where(fellows.c.identity == identity))
            row = found.mappings().first()
        return FellowRecord(**row) if row is not None else None

    @uncut
    async def all(self) -> list[FellowRecord]:
        """Every machine not deleted, by name."""
        async with self._database.reading() as connection:
            found = await connection.execute(sa.select(fellows).where(sa.not_(fellows.c.deleted)))
            records = [FellowRecord(**row) for row in found.mappings()]
        # Sorted here: the two engines order text differently.
        return sorted(records, key=lambda fellow: (fellow.name, fellow.fellow_id))
