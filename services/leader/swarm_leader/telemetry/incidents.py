"""Puts incidents on the timeline of their pool as they are recorded. Changes none of them."""

from collections.abc import Callable

from swarm_leader.domain.incidents import IncidentRecord
from swarm_leader.domain.ports import IncidentStore

OPEN_MAX = 1000


class ToldIncidents:
    """An IncidentStore that tells of every one that opens or is over. tell: must not wait, nor raise."""

    def __init__(self, store: IncidentStore, tell: Callable[[IncidentRecord], None]) -> None:
        self._store = store
        self._tell = tell
        self._open: set[str] = set()

    async def save(self, incident: IncidentRecord) -> None:
        """As the store does; told also when the store fails, since it happened all the same."""
        is_new = incident.incident_id not in self._open
        if is_new or not incident.is_open:
            self._tell(incident)
        if not incident.is_open or len(self._open) >= OPEN_MAX:
            self._open.discard(incident.incident_id)
        else:
            self._open.add(incident.incident_id)
        await self._store.save(incident)

    async def open(self) -> list[IncidentRecord]:
        """As the store does. Those were told of before the leader started anew."""
        found = await self._store.open()
        self._open.update(incident.incident_id for incident in found[:OPEN_MAX])
        return found

    async def newest(self, limit: int, model_id: str = "", skip: int = 0) -> list[IncidentRecord]:
        """As the store does."""
        return await self._store.newest(limit, model_id, skip)
