"""Placements, their stages and their append-only log, as rows. Implements domain.ports.Ledger; judges no epoch."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import sqlalchemy as sa
from sqlalchemy.ext.asyncio import AsyncConnection
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError

from swarm_leader.domain.holding import AdapterRef, AdapterUse, DeviceRun, InnerCodec
from swarm_leader.domain.records import LedgerEvent, PlacementRecord, PlacementState, Route, StageRecord, Transport
from swarm_leader.store.fellows import Transactions
from swarm_leader.store.schema import placement_events, placement_stages, placements, write_probe
from swarm_leader.store.uncut import uncut
from swarm_leader.store.upsert import clean_text, insert_or_replace

PROBE_S = 2.0  # a disk that takes longer for one row is not one to promise durability on


class SqlLedger:
    """The newest placement of a model is the one with the highest epoch, then the latest made."""

    def __init__(self, database: Transactions, clock: Clock, probe_s: float = PROBE_S) -> None:
        self.uncut = database.uncut
        self._database = database
        self._clock = clock
        self._probe_s = probe_s
        self._probe: asyncio.Task[None] | None = None

    @uncut
    async def save(self, placement: PlacementRecord, what: str) -> None:
        """Insert or replace the placement and append `what` to its log, in one transaction; durable when it returns."""
        event = {
            "placement_id": placement.placement_id,
            "epoch": placement.epoch,
            "at_s": self._clock.unix_s(),
            "what": clean_text(what),
        }
        stage_rows = [_stage_row(placement.placement_id, stage) for stage in placement.stages]
        mine = placement_stages.c.placement_id == placement.placement_id
        async with self._database.writing() as connection:
            await connection.execute(insert_or_replace(connection.dialect.name, placements, _row_of(placement)))
            await connection.execute(sa.delete(placement_stages).where(mine))
            if stage_rows:
                await connection.execute(sa.insert(placement_stages), stage_rows)
            await connection.execute(sa.insert(placement_events).values(event))

    @uncut
    async def latest(self, model_id: str) -> PlacementRecord | None:
        """The newest placement of a model."""
        newest = (
            sa.select(placements)
            .where(placements.c.model_id == model_id)
            .order_by(placements.c.epoch.desc(), placements.c.created_s.desc(), placements.c.placement_id.desc())
            .limit(1)
        )
        async with self._database.reading() as connection:
            records = await _records(connection, newest)
        return records[0] if records else None

    @uncut
    async def open(self) -> list[PlacementRecord]:
        """The newest placement of every model that is not unloaded, by model id."""
        order = (placements.c.epoch.desc(), placements.c.created_s.desc(), placements.c.placement_id.desc())
        place = sa.func.row_number().over(partition_by=placements.c.model_id, order_by=order).label("place")
        ranked = sa.select(placements.c.placement_id, place).subquery()
        newest = (
            sa.select(placements)
            .join(ranked, ranked.c.placement_id == placements.c.placement_id)
            .where(ranked.c.place == 1, placements.c.state != PlacementState.UNLOADED.value)
        )
        async with self._database.reading() as connection:
            records = await _records(connection, newest)
        return sorted(records, key=lambda placement: placement.model_id)

    @uncut
    async def events(self, placement_id: str) -> list[LedgerEvent]:
        """The placement's log, oldest first."""
        log = (
            sa.select(placement_events)
            .where(placement_events.c.placement_id == placement_id)
            .order_by(placement_events.c.sequence)
        )
        async with self._database.reading() as connection:
            return [LedgerEvent(**row) for row in (await connection.execute(log)).mappings()]

    async def is_writable(self) -> str:
        """Empty when the database takes a write now; else why not. Answers within two seconds.

        A write that hangs is left to end by itself, and until it does this answers at once: cancelling a driver in
        mid-commit would cost the only connection.
        """
        if self._probe is None:
            self._probe = asyncio.create_task(self._write_probe())
        done, _ = await asyncio.wait({self._probe}, timeout=self._probe_s)
        if not done:
            return f"the database did not finish a write within {self._probe_s:g} s"
        probe, self._probe = done.pop(), None
        error = probe.exception()
        if error is None:
            return ""
        return error.message if isinstance(error, SwarmError) else f"{type(error).__name__}: {error}"

    async def settle(self) -> None:
        """Let a write that is under way end, before the connections are closed."""
        if self._probe is not None:
            await asyncio.wait({self._probe}, timeout=4 * self._probe_s)

    async def _write_probe(self) -> None:
        row = {"probe": 1, "at_s": self._clock.unix_s()}
        async with self._database.writing() as connection:
            await connection.execute(insert_or_replace(connection.dialect.name, write_probe, row))


def _row_of(placement: PlacementRecord) -> dict[str, Any]:
    row = asdict(placement)
    del row["stages"]
    notes = [clean_text(note) for note in placement.notes]
    return row | {"reason": clean_text(placement.reason), "notes": notes}


def _stage_row(placement_id: str, stage: StageRecord) -> dict[str, Any]:
    return {"placement_id": placement_id, **asdict(stage), "quantization": clean_text(stage.quantization)}


async def _records(connection: AsyncConnection, query: sa.Select[Any]) -> list[PlacementRecord]:
    """The placements of a query with their stages."""
    rows = (await connection.execute(query)).mappings().all()
    ids = [row["placement_id"] for row in rows]
    wanted = (
        sa.select(placement_stages)
        .where(placement_stages.c.placement_id.in_(ids))
        .order_by(placement_stages.c.placement_id, placement_stages.c.stage_index)
    )
    stage_rows = (await connection.execute(wanted)).mappings().all() if ids else []
    return [
        _placement_of(row, [stage for stage in stage_rows if stage["placement_id"] == row["placement_id"]])
        for row in rows
    ]


def _placement_of(row: Any, stage_rows: Sequence[Any]) -> PlacementRecord:
    facts = dict(row)
    return PlacementRecord(
        **facts
        | {
            "state": PlacementState(facts["state"]),
            "transport": Transport(facts["transport"]),
            "notes": tuple(facts["notes"]),
            "adapters": tuple(AdapterRef(**one | {"use": AdapterUse(one["use"])}) for one in facts["adapters"]),
            "stages": tuple(_stage_of(stage_row) for stage_row in stage_rows),
        }
    )


def _stage_of(row: Any) -> StageRecord:
    facts = {name: fact for name, fact in row.items() if name != "placement_id"}
    return StageRecord(
        **facts
        | {
            "route": Route(facts["route"]),
            "devices": tuple(DeviceRun(**run) for run in facts["devices"]),
            "inner_codecs": tuple(InnerCodec(**one) for one in facts["inner_codecs"]),
        }
    )
