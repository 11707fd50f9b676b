"""The leader's database: fellows, placements, incidents and tokens, on SQLite or PostgreSQL. Decides nothing."""

from swarm_leader.store.database import Store, open_store

__all__ = ["Store", "open_store"]
