"""Opens the database, brings its schema up to date, and hands out the stores. Knows no table."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from swarm_core.clock import Clock, SystemClock
from swarm_core.errors import DiskFull

from swarm_leader.store.address import Address, parse_address
from swarm_leader.store.failures import swarm_error_of
from swarm_leader.store.fellows import SqlFellowStore
from swarm_leader.store.incidents import SqlIncidentStore
from swarm_leader.store.ledger import SqlLedger
from swarm_leader.store.metrics import SqlMetrics
from swarm_leader.store.migrate import upgrade_schema
from swarm_leader.store.tokens import SqlJoinTokenStore, SqlTokenStore
from swarm_leader.store.uncut import Uncut

BUSY_MS = 5_000  # another process holding the SQLite file (a backup, a person) is waited for this long
ANSWER_S = 10.0  # a PostgreSQL that takes longer for one statement counts as gone


class Database:
    """One engine with two ways in. Errors of the outside world leave as SwarmErrors.

    SQLite has exactly one connection, so this process is one writer and never meets its own lock.
    """

    def __init__(self, engine: AsyncEngine, is_sqlite: bool) -> None:
        self.uncut = Uncut()
        self._engine = engine
        self._is_sqlite = is_sqlite

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """One snapshot."""
        async with self._transaction("BEGIN") as connection:
            yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """One transaction; durable when the block is left without an error.

        Raises DiskFull, Unavailable (no database, or it is locked), Conflict (a constraint).
        """
        async with self._transaction("BEGIN IMMEDIATE") as connection:
            yield connection

    @asynccontextmanager
    async def _transaction(self, sqlite_begin: str) -> AsyncIterator[AsyncConnection]:
        try:
            async with self._engine.begin() as connection:
                if (
                    self._is_sqlite
                ):  # the driver runs in autocommit; the write lock is taken up front, never upgraded to
                    await connection.exec_driver_sql(sqlite_begin)
                yield connection
        except Exception as error:
            known = swarm_error_of(error)
            if known is None:
                raise
            raise known from error

    async def close(self) -> None:
        """Let what runs end, and give the connections back."""
        await self.uncut.settle()
        await self._engine.dispose()


class Store:
    """What the leader remembers. Use as `async with await open_store(url) as store`, or close() it."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self.fellows = SqlFellowStore(database)
        self.ledger = SqlLedger(database, clock)
        self.incidents = SqlIncidentStore(database)
        self.tokens = SqlTokenStore(database)
        self.join_tokens = SqlJoinTokenStore(database)
        self.metrics = SqlMetrics(database)

    async def close(self) -> None:
        """Close every connection; nothing acknowledged is lost with or without it."""
        await self.ledger.settle()
        await self._database.close()

    async def __aenter__(self) -> "Store":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def open_store(database_url: str, clock: Clock | None = None) -> Store:
    """Open the database and bring its schema up to date; safe when two processes do so at once.

    database_url: sqlite:///PATH (made when missing) or postgresql://USER@HOST/NAME.
    Raises BadRequest (URL, or a database newer than this code), Unavailable, DiskFull.
    """
    address = parse_address(database_url)
    if address.sqlite_file is not None:
        try:
            await asyncio.to_thread(_make_private, address.sqlite_file)
        except OSError as error:
            raise DiskFull(f"cannot make the folder or the file of {address}: {error.strerror}") from error
    database = Database(_engine(address), address.is_sqlite)
    try:
        async with database.writing() as connection:
            await upgrade_schema(connection, str(address))
    except BaseException:
        await database.close()
        raise
    return Store(database, clock or SystemClock())


def _make_private(file: Path) -> None:
    """An empty file for its owner alone, where there is none; what SQLite puts beside it has the same mode."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not file.exists():
        os.close(os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _engine(address: Address) -> AsyncEngine:
    if not address.is_sqlite:
        limits = {"timeout": ANSWER_S, "command_timeout": ANSWER_S}
        return create_async_engine(
            address.url, pool_size=5, max_overflow=5, pool_timeout=ANSWER_S, pool_pre_ping=True, connect_args=limits
        )
    engine = create_async_engine(
        address.url,
        pool_size=1,
        max_overflow=0,
        pool_timeout=ANSWER_S,
        connect_args={"isolation_level": None, "timeout": BUSY_MS / 1000},
    )
    sa.event.listen(engine.sync_engine, "connect", _set_pragmas)
    return engine


def _set_pragmas(connection: Any, _record: Any) -> None:
    """FULL fsyncs the write-ahead log at every commit: what was acknowledged survives a power cut."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", f"busy_timeout={BUSY_MS}"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()
