"""Figures by minute and hour, and events of machines, as rows. Implements domain.telemetry_records.MetricStore."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict

import sqlalchemy as sa

from swarm_leader.domain.telemetry_records import (
    EVENTS_KEPT_S,
    EVENTS_MAX,
    HOUR_S,
    HOURS_KEPT_S,
    MINUTE_S,
    MINUTES_KEPT_S,
    POINTS_MAX,
    MetricRow,
    NodeEvent,
)
from swarm_leader.store.fellows import Transactions
from swarm_leader.store.schema import metric_rows, node_events
from swarm_leader.store.uncut import uncut
from swarm_leader.store.upsert import clean_text, insert_or_replace_many


class SqlMetrics:
    """One table of figures, one of events."""

    def __init__(self, database: Transactions) -> None:
        self.uncut = database.uncut
        self._database = database

    @uncut
    async def add(self, rows: Sequence[MetricRow]) -> None:
        """Insert or replace; all or nothing, durable."""
        values = [asdict(row) | {"figures": dict(row.figures)} for row in rows]
        if values:
            async with self._database.writing() as connection:
                await connection.execute(insert_or_replace_many(connection.dialect.name, metric_rows), values)

    @uncut
    async def history(
        self, pool: str, fellow_id: str, resolution_s: int, from_s: int, to_s: int
    ) -> list[tuple[int, Mapping[str, float]]]:
        """When and what, oldest first, the newest POINTS_MAX of from_s <= at_s < to_s."""
        columns = metric_rows.c
        wanted = (
            sa.select(columns.at_s, columns.figures)
            .where(columns.resolution_s == resolution_s, columns.pool == pool, columns.fellow_id == fellow_id)
            .where(columns.at_s >= from_s, columns.at_s < to_s)
            .order_by(columns.at_s.desc())
            .limit(POINTS_MAX)
        )
        async with self._database.reading() as connection:
            found = (await connection.execute(wanted)).all()
        return [(at_s, figures) for at_s, figures in reversed(found)]

    @uncut
    async def roll_up(self, hour_s: int) -> None:
        """Write the hour that begins then as the means of its minutes; again is harmless."""
        columns = metric_rows.c
        minutes = sa.select(columns.pool, columns.fellow_id, columns.figures).where(
            columns.resolution_s == MINUTE_S, columns.at_s >= hour_s, columns.at_s < hour_s + HOUR_S
        )
        async with self._database.reading() as connection:
            found = (await connection.execute(minutes)).all()
        series: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
        for pool, fellow_id, figures in found:
            for name, figure in figures.items():
                series[pool, fellow_id][name].append(figure)
        await self.add(
            [
                MetricRow(
                    HOUR_S, hour_s, pool, fellow_id, {name: sum(them) / len(them) for name, them in figures.items()}
                )
                for (pool, fellow_id), figures in sorted(series.items())
            ]
        )

    @uncut
    async def newest(self, resolution_s: int) -> int | None:
        """When the newest row of this resolution begins."""
        wanted = sa.select(sa.func.max(metric_rows.c.at_s)).where(metric_rows.c.resolution_s == resolution_s)
        async with self._database.reading() as connection:
            return (await connection.execute(wanted)).scalar()

    @uncut
    async def oldest(self, resolution_s: int) -> int | None:
        """When the oldest row of this resolution begins."""
        wanted = sa.select(sa.func.min(metric_rows.c.at_s)).where(metric_rows.c.resolution_s == resolution_s)
        async with self._database.reading() as connection:
            return (await connection.execute(wanted)).scalar()

    @uncut
    async def prune(self, now_s: int) -> None:
        """Forget what is older than it is kept, and the oldest events beyond EVENTS_MAX."""
        async with self._database.writing() as connection:
            for resolution_s, kept_s in ((MINUTE_S, MINUTES_KEPT_S), (HOUR_S, HOURS_KEPT_S)):
                old = (metric_rows.c.resolution_s == resolution_s) & (metric_rows.c.at_s < now_s - kept_s)
                await connection.execute(sa.delete(metric_rows).where(old))
            newest = (await connection.execute(sa.select(sa.func.max(node_events.c.sequence)))).scalar() or 0
            old = (node_events.c.at_s < now_s - EVENTS_KEPT_S) | (node_events.c.sequence <= newest - EVENTS_MAX)
            await connection.execute(sa.delete(node_events).where(old))

    @uncut
    async def add_events(self, events: Sequence[NodeEvent]) -> None:
        """Append, in order; all or nothing, durable."""
        async with self._database.writing() as connection:
            for event in events:  # one by one: their order is their sequence
                row = {name: clean_text(it) if isinstance(it, str) else it for name, it in asdict(event).items()}
                del row["sequence"]
                await connection.execute(sa.insert(node_events).values(row))

    @uncut
    async def events(self, pool: str, limit: int, before_sequence: int = 0, fellow_id: str = "") -> list[NodeEvent]:
        """Newest first. before_sequence, fellow_id: 0 and "" are all."""
        wanted = sa.select(node_events).where(node_events.c.pool == pool)
        if before_sequence:
            wanted = wanted.where(node_events.c.sequence < before_sequence)
        if fellow_id:
            wanted = wanted.where(node_events.c.fellow_id == fellow_id)
        async with self._database.reading() as connection:
            found = await connection.execute(wanted.order_by(node_events.c.sequence.desc()).limit(limit))
            return [NodeEvent(**row) for row in found.mappings()]
