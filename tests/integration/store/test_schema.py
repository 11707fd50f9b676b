"""The schema: made once, the same in code and migrations, and never downgraded by accident."""

import asyncio

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy.ext.asyncio import create_async_engine
from swarm_core.errors import BadRequest
from swarm_leader.store import open_store
from swarm_leader.store.address import parse_address
from swarm_leader.store.migrate import newest_revision
from swarm_leader.store.schema import metadata

from tests.integration.store.older import go_back
from tests.integration.store.rows import before_weights, fellow, placement


async def test_the_migrations_make_exactly_the_tables_of_the_code(database_url: str):
    await (await open_store(database_url)).close()
    engine = create_async_engine(parse_address(database_url).url)

    def differences(connection: sa.Connection) -> list[object]:
        return compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata)

    async with engine.connect() as connection:
        assert await connection.run_sync(differences) == []
    await engine.dispose()


async def test_a_missing_column_would_be_noticed(database_url: str):
    await (await open_store(database_url)).close()
    engine = create_async_engine(parse_address(database_url).url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("ALTER TABLE fellows DROP COLUMN version")
        changes = await connection.run_sync(lambda sync: compare_metadata(MigrationContext.configure(sync), metadata))
    await engine.dispose()

    assert [change[0] for change in changes] == ["add_column"]


async def test_opening_at_once_makes_the_schema_once(database_url: str):
    stores = await asyncio.gather(*(open_store(database_url) for _ in range(4)))
    await stores[0].fellows.save(fellow(1))

    assert await stores[3].fellows.all() == [fellow(1)]
    for store in stores:
        await store.close()


async def test_a_database_newer_than_the_code_is_refused(database_url: str):
    await (await open_store(database_url)).close()
    engine = create_async_engine(parse_address(database_url).url)
    async with engine.begin() as connection:
        await connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")

    with pytest.raises(BadRequest, match="newer version") as refused:
        await open_store(database_url)
    assert refused.value.facts["schema"] == "9999"
    assert refused.value.facts["newest_known"] == newest_revision()
    async with engine.connect() as connection:
        assert (await connection.exec_driver_sql("SELECT version_num FROM alembic_version")).scalar() == "9999"
    await engine.dispose()


async def test_placements_from_before_batches_were_capped_have_no_cap(database_url: str):
    store = await open_store(database_url)
    await store.ledger.save(placement(), "made before")
    await store.close()
    await go_back(database_url, "0001")

    store = await open_store(database_url)

    assert await store.ledger.latest("org/model") == before_weights(placement(batch_max=0))
    await store.close()


async def test_placements_from_before_weights_were_held_in_ways_are_at_full_precision(database_url: str):
    store = await open_store(database_url)
    await store.ledger.save(placement(), "made before")
    await store.close()
    await go_back(database_url, "0003")

    store = await open_store(database_url)

    assert await store.ledger.latest("org/model") == before_weights(placement())
    await store.ledger.save(placement(), "saved again")
    assert await store.ledger.latest("org/model") == placement()
    await store.close()
