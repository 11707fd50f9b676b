"""Sends alerts beside everything else: a bounded queue, a few tries, and then a line in the log."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError

from swarm_leader.domain.telemetry_records import NodeEvent
from swarm_leader.telemetry.alerts import Alert, AlertGate

log = structlog.get_logger()
WAITING_MAX = 100
SEND_TIMEOUT_S = 20.0  # of one try; the thread of one that takes longer is left to its own deadlines
AGAIN_S = (1.0, 5.0)  # waits between three tries


class Way(Protocol):
    """How an alert leaves."""

    def send(self, alert: Alert) -> None:
        """Blocks for some seconds at most. Raises Unavailable."""


class Alerting:
    """Every way for every alert. waits_s: between tries, for tests."""

    def __init__(self, ways: Sequence[Way], clock: Clock, waits_s: Sequence[float] = AGAIN_S) -> None:
        self._ways = ways
        self._clock = clock
        self._waits_s = waits_s
        self._gate = AlertGate()
        self._waiting: asyncio.Queue[Alert] = asyncio.Queue(WAITING_MAX)

    def take(self, event: NodeEvent) -> None:
        """Something happened. Waits for nothing; what does not fit is dropped with a line in the log."""
        alert = self._gate.take(event, self._clock.monotonic_s()) if self._ways else None
        if alert is None:
            return
        try:
            self._waiting.put_nowait(alert)
        except asyncio.QueueFull:
            log.warning("an alert was dropped: too many wait", alert=alert.title)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            alert = await self._waiting.get()
            await asyncio.gather(*(self._send(way, alert) for way in self._ways))

    async def _send(self, way: Way, alert: Alert) -> None:
        for wait_s in (*self._waits_s, None):
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    await asyncio.to_thread(way.send, alert)
                return
            except (SwarmError, TimeoutError) as error:
                why = getattr(error, "message", "it took too long")
            except Exception as error:  # a way of ours that is broken must not end the others
                why = repr(error)
            if wait_s is None:
                log.warning("an alert could not be sent", alert=alert.title, way=type(way).__name__, why=why)
            else:
                await asyncio.sleep(wait_s)
