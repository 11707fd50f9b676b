"""What was acknowledged survives; what cannot be written says so."""

import asyncio
import os
import signal
import sqlite3
import stat
import sys
import textwrap
import time
from pathlib import Path

import asyncpg
import pytest
from swarm_core.errors import BadRequest, DiskFull, Unavailable
from swarm_leader.store import open_store

from tests.integration.store.rows import fellow, placement

_WRITER = textwrap.dedent("""
    import asyncio, sys
    from swarm_leader.store import open_store
    from tests.integration.store.rows import fellow, placement

    async def main():
        store = await open_store(sys.argv[1])
        for number in range(1000):
            await store.fellows.save(fellow(number))
            await store.ledger.save(placement(f"m{number}"), "planned")
            print(number, flush=True)

    asyncio.run(main())
""")


async def test_a_killed_leader_loses_nothing_it_acknowledged(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/leader.db"
    writer = await asyncio.create_subprocess_exec(
        sys.executable, "-c", _WRITER, url, stdout=asyncio.subprocess.PIPE, cwd=Path(__file__).parents[3]
    )
    async with asyncio.timeout(60):
        while int((await writer.stdout.readline()).strip()) < 5:
            pass
        writer.send_signal(signal.SIGKILL)
        acknowledged = 5 + len((await writer.stdout.read()).splitlines())
        await writer.wait()

    async with await open_store(url) as store:
        assert len(await store.fellows.all()) >= acknowledged + 1
        assert len(await store.ledger.open()) >= acknowledged + 1
        assert await store.fellows.by_identity(f"identity-{acknowledged}") == fellow(acknowledged)


async def test_sqlite_writes_through_a_full_fsynced_log(tmp_path: Path):
    async with await open_store(f"sqlite:///{tmp_path}/leader.db") as store, store._database.reading() as connection:
        pragmas = {
            name: (await connection.exec_driver_sql(f"PRAGMA {name}")).scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }

    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "busy_timeout": 5000}


async def test_a_database_somebody_locks_is_not_writable_and_says_so_in_time(tmp_path: Path):
    async with await open_store(f"sqlite:///{tmp_path}/leader.db") as store:
        other = sqlite3.connect(tmp_path / "leader.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        before_s = time.monotonic()
        reason = await store.ledger.is_writable()
        took_s = time.monotonic() - before_s
        assert await store.fellows.all() == []  # read after the write that hangs, on the same connection
        other.execute("ROLLBACK")
        other.close()

        assert "did not finish a write within 2 s" in reason
        assert took_s < 4
        async with asyncio.timeout(20):
            while await store.ledger.is_writable():
                pass
        await store.fellows.save(fellow(1))
        assert await store.fellows.all() == [fellow(1)]


async def test_a_full_sqlite_disk_refuses_the_write_and_recovers(tmp_path: Path):
    async with await open_store(f"sqlite:///{tmp_path}/leader.db") as store:
        async with store._database.reading() as connection:
            pages = (await connection.exec_driver_sql("PRAGMA page_count")).scalar()
            await connection.exec_driver_sql(f"PRAGMA max_page_count={pages}")
        with pytest.raises(DiskFull):
            await store.fellows.save(fellow(1, hardware=b"x" * 100_000))
        async with store._database.reading() as connection:
            await connection.exec_driver_sql("PRAGMA max_page_count=1000000")

        await store.fellows.save(fellow(1))
        assert await store.fellows.all() == [fellow(1)]


async def test_a_read_only_postgresql_is_not_writable_and_says_why(postgres_address):
    connection = await asyncpg.connect(postgres_address("postgres"))
    await connection.execute("CREATE DATABASE swarm_read_only")
    url = postgres_address("swarm_read_only")
    await (await open_store(url)).close()
    await connection.execute("ALTER DATABASE swarm_read_only SET default_transaction_read_only = on")
    await connection.close()

    # Opening needs no write when the schema is the newest, so a leader on a read-only database still starts.
    async with await open_store(url) as store:
        assert "read-only" in await store.ledger.is_writable()
        assert await store.fellows.all() == []


async def test_the_leader_outlives_broken_postgresql_connections(postgres_address):
    connection = await asyncpg.connect(postgres_address("postgres"))
    await connection.execute("CREATE DATABASE swarm_broken")
    async with await open_store(postgres_address("swarm_broken")) as store:
        await store.ledger.save(placement(), "planned")
        await connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'swarm_broken'"
        )

        await store.ledger.save(placement(), "again")
        assert [event.what for event in await store.ledger.events(placement().placement_id)] == ["planned", "again"]
    await connection.close()


async def test_a_postgresql_that_is_not_there_is_unavailable(tmp_path: Path):
    with pytest.raises(Unavailable):
        await open_store(f"postgresql://somebody:secret@/nothing?host={tmp_path}")


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://root:secret@host/x", "'mysql' is not supported"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("what?", "cannot be read"),
    ],
)
async def test_an_address_that_cannot_work_is_refused_without_repeating_a_password(url: str, words: str):
    with pytest.raises(BadRequest, match=words) as refused:
        await open_store(url)
    assert "secret" not in str(refused.value)


async def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")

    with pytest.raises(DiskFull, match="cannot make the folder"):
        await open_store(f"sqlite:///{tmp_path}/file/leader.db")


async def test_what_is_remembered_is_for_its_owners_eyes_alone(tmp_path: Path):
    """Identities of machines, labels and digests of secrets: also in a folder that others may read."""
    mask = os.umask(0o022)
    try:
        store = await open_store(f"sqlite:///{tmp_path}/made/leader.db")
    finally:
        os.umask(mask)
    await store.fellows.save(fellow(1))
    files = list((tmp_path / "made").iterdir())

    assert {file.name for file in files} >= {"leader.db", "leader.db-wal"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    await store.close()


async def test_a_file_that_is_no_database_is_told(tmp_path: Path):
    (tmp_path / "leader.db").write_text(
        "these are notes, not a database, and long enough to be read as its header" * 50
    )

    with pytest.raises(DiskFull, match="not a database"):
        await open_store(f"sqlite:///{tmp_path}/leader.db")
