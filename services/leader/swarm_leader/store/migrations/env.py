"""Runs migrations on the connection that store.migrate hands over. Reads no file and opens no database."""

from alembic import context

from swarm_leader.store.schema import metadata

# The caller holds the transaction, so that a failed upgrade leaves nothing behind on either engine.
context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=True)
with context.begin_transaction():
    context.run_migrations()
