"""Brings a database to the newest schema, in this process. What changes is in migrations/versions."""

from pathlib import Path

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.ext.asyncio import AsyncConnection
from swarm_core.errors import BadRequest

_LOCK = 0x5357_4152_4D  # "SWARM": one schema change at a time on a PostgreSQL that several leaders share


async def upgrade_schema(connection: AsyncConnection, address: str) -> None:
    """Upgrade inside the caller's transaction; nothing happens when the schema is the newest already.

    address: the database, for messages. Raises BadRequest when the database is newer than this code.
    """
    if connection.dialect.name == "postgresql":
        await connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
    await connection.run_sync(_upgrade, address)


def newest_revision() -> str:
    """The revision this code is made for."""
    head = ScriptDirectory.from_config(_config()).get_current_head()
    assert head is not None
    return head


def _upgrade(connection: sa.Connection, address: str) -> None:
    config = _config()
    scripts = ScriptDirectory.from_config(config)
    current = MigrationContext.configure(connection).get_current_revision()
    if current is not None and current not in {script.revision for script in scripts.walk_revisions()}:
        raise BadRequest(
            f"the database {address} is at schema {current!r}, which this version of SilentSwarm does not know: a "
            "newer version has written it. Install that version again, or restore the backup made before the upgrade.",
            field="database_url",
            schema=current,
            newest_known=scripts.get_current_head(),
        )
    if current != scripts.get_current_head():
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
