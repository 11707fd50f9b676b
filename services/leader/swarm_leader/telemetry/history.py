"""Writes figures by the minute, rolls them up by the hour, forgets what is old, and writes events. Judges nothing."""

import asyncio
from collections.abc import Callable

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError

from swarm_leader.domain.telemetry_records import HOUR_S, MINUTE_S, MetricRow, MetricStore
from swarm_leader.telemetry.feed import Telemetry

log = structlog.get_logger()
TICK_S = 1.0
EVENTS_AT_ONCE = 100
ROLL_UPS_AT_ONCE = 24  # hours that were missed, as of a leader that did not run


class History:
    """Keeps what telemetry sees. A database that takes no write costs minutes, never more."""

    def __init__(self, telemetry: Telemetry, store: MetricStore, clock: Clock) -> None:
        self._telemetry = telemetry
        self._store = store
        self._clock = clock
        self._minute_s = self._full(MINUTE_S)
        self._hour_s: int | None = None  # the last hour that was rolled up and pruned after
        self._rolled_s = 0
        self._has_failed = False

    async def run(self, also: Callable[[], None] = lambda: None) -> None:
        """Until cancelled. also: done with every tick; must not wait."""
        while True:
            await asyncio.sleep(min(TICK_S, self._telemetry.heartbeat_s))
            self._telemetry.tick()
            also()
            await self.write_due()

    async def write_due(self) -> None:
        """Events that wait; the minute and the hour that are over. Failures are logged and tried again."""
        try:
            await self._write_events()
            if self._full(MINUTE_S) != self._minute_s:
                await self._write_minute()
            if self._full(HOUR_S) != self._hour_s:
                await self._end_hour()
            self._has_failed = False
        except SwarmError as error:
            if not self._has_failed:
                log.warning("telemetry cannot be kept now", why=error.message)
            self._has_failed = True

    async def _write_events(self) -> None:
        while waiting := self._telemetry.timeline.waiting()[:EVENTS_AT_ONCE]:
            await self._store.add_events(waiting)
            self._telemetry.timeline.written(len(waiting))

    async def _write_minute(self) -> None:
        """The figures as of now stand for the minute that is over. A minute that cannot be written is given up."""
        minute_s, self._minute_s = self._minute_s, self._full(MINUTE_S)
        rows = []
        for pool in self._telemetry.pools():
            view = self._telemetry.pool(pool)
            serving = self._telemetry.serving_of(pool).figures(self._clock.monotonic_s(), MINUTE_S)
            rows.append(MetricRow(MINUTE_S, minute_s, pool, "", view.metrics(serving)))
            nodes = [(node.fellow_id, node.metrics()) for node in view.nodes if node.state != "lost"]
            rows += [MetricRow(MINUTE_S, minute_s, pool, fellow_id, figures) for fellow_id, figures in nodes if figures]
            await asyncio.sleep(0)
        await self._store.add(rows)

    async def _end_hour(self) -> None:
        """Roll up every full hour that is not yet, a day of them at most at once, then prune."""
        now_hour_s = self._full(HOUR_S)
        newest_s, oldest_s = await self._store.newest(HOUR_S), await self._store.oldest(MINUTE_S)
        if oldest_s is not None:
            written_s = newest_s + HOUR_S if newest_s is not None else 0
            missed = range(max(written_s, self._rolled_s, oldest_s - oldest_s % HOUR_S), now_hour_s, HOUR_S)
            for hour_s in missed[:ROLL_UPS_AT_ONCE]:
                await self._store.roll_up(hour_s)
                self._rolled_s = hour_s + HOUR_S  # an hour without minutes leaves no row
            if len(missed) > ROLL_UPS_AT_ONCE:
                return  # the rest with the next tick
        await self._store.prune(int(self._clock.unix_s()))
        self._hour_s = now_hour_s

    def _full(self, length_s: int) -> int:
        now_s = int(self._clock.unix_s())
        return now_s - now_s % length_s
