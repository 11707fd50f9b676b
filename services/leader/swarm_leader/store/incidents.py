"""Incidents of placements, as rows. Implements domain.ports.IncidentStore; keeps the newest."""

from dataclasses import asdict
from typing import Any

import sqlalchemy as sa

from swarm_leader.domain.incidents import IncidentKind, IncidentRecord, IncidentStep, Outcome
from swarm_leader.store.fellows import Transactions
from swarm_leader.store.schema import incidents
from swarm_leader.store.uncut import uncut
from swarm_leader.store.upsert import clean_text, insert_or_replace

KEPT_MAX = 1000


class SqlIncidentStore:
    """The newest `kept_max` incidents, and every open one."""

    def __init__(self, database: Transactions, kept_max: int = KEPT_MAX) -> None:
        self.uncut = database.uncut
        self._database = database
        self._kept_max = kept_max

    @uncut
    async def save(self, incident: IncidentRecord) -> None:
        """Insert or replace by incident_id; durable when it returns. A closed one makes the oldest go."""
        async with self._database.writing() as connection:
            await connection.execute(insert_or_replace(connection.dialect.name, incidents, _row_of(incident)))
            if not incident.is_open:
                newest = (
                    sa.select(incidents.c.incident_id)
                    .order_by(incidents.c.opened_s.desc(), incidents.c.incident_id.desc())
                    .limit(self._kept_max)
                )
                surplus = incidents.c.incident_id.not_in(newest) & incidents.c.closed_s.is_not(None)
                await connection.execute(sa.delete(incidents).where(surplus))

    @uncut
    async def open(self) -> list[IncidentRecord]:
        """Those that are not over, oldest first."""
        query = (
            sa.select(incidents)
            .where(incidents.c.closed_s.is_(None))
            .order_by(incidents.c.opened_s, incidents.c.incident_id)
        )
        return await self._read(query)

    @uncut
    async def newest(self, limit: int, model_id: str = "", skip: int = 0) -> list[IncidentRecord]:
        """Newest first. model_id: "" is of every model."""
        query = sa.select(incidents).order_by(incidents.c.opened_s.desc(), incidents.c.incident_id.desc())
        if model_id:
            query = query.where(incidents.c.model_id == model_id)
        return await self._read(query.limit(limit).offset(skip))

    async def _read(self, query: sa.Select[Any]) -> list[IncidentRecord]:
        async with self._database.reading() as connection:
            return [_incident_of(row) for row in (await connection.execute(query)).mappings()]


def _row_of(incident: IncidentRecord) -> dict[str, Any]:
    row = asdict(incident)
    return row | {
        "log": [{"at_s": step.at_s, "what": clean_text(step.what)} for step in incident.log],
        "lost": [clean_text(name) for name in incident.lost],
        "replacements": [clean_text(name) for name in incident.replacements],
    }


def _incident_of(row: Any) -> IncidentRecord:
    facts = dict(row)
    return IncidentRecord(
        **facts
        | {
            "kind": IncidentKind(facts["kind"]),
            "outcome": Outcome(facts["outcome"]),
            "stages": tuple(facts["stages"]),
            "lost": tuple(facts["lost"]),
            "replacements": tuple(facts["replacements"]),
            "log": tuple(IncidentStep(**step) for step in facts["log"]),
        }
    )
