"""One fellow's life: everything runs beside everything until a stop, then every stage ends and nothing stays behind."""

import asyncio
from collections.abc import Sequence
from typing import Protocol

import structlog
from swarm_core.loop_lag import watch_loop_lag
from swarm_core.metrics_listener import MetricsListener
from swarm_rpc.race import run_until_first

from swarm_fellow.flows.link import LeaderLink
from swarm_fellow.flows.maintenance import Maintenance
from swarm_fellow.flows.stages import StageTable
from swarm_fellow.host.notify import ServiceNotifier
from swarm_fellow.host.stage_process import StageHost
from swarm_fellow.metrics import FellowMetrics

log = structlog.get_logger()

STOP_S = 12.0  # a stage is killed after 10 s; what is left then gets 5 s more, and systemd waits 20


class Connection(Protocol):
    """Something that is hung up when all is over."""

    async def close(self) -> None:
        """Hang up."""


class Fellow:
    """The parts of one fellow, run together.

    connections: hung up at the end. metrics_listen: HOST:PORT for Prometheus, or "" for none.
    """

    def __init__(
        self,
        link: LeaderLink,
        maintenance: Maintenance,
        table: StageTable,
        host: StageHost,
        connections: Sequence[Connection],
        notifier: ServiceNotifier,
        metrics: FellowMetrics,
        metrics_listen: str,
    ) -> None:
        self.table = table
        self._metrics = metrics
        self._listener = MetricsListener(metrics_listen, metrics.registry) if metrics_listen else None
        self._link = link
        self.maintenance = maintenance
        self._host = host
        self._connections = connections
        self._notifier = notifier

    async def run(self, stop: asyncio.Event) -> bool:
        """Serve until `stop` is set, or an UPDATE is answered; then end every stage within 17 s.

        Returns whether to start the program anew. Raises what a part died of, once all ended, and BadRequest when it
        cannot listen for Prometheus.
        """
        if self._listener is not None:
            self._listener.start()
            log.info("figures for Prometheus", url=f"http://{self._listener.address}/metrics")
        self._notifier.ready()
        lag = watch_loop_lag(self._metrics.loop_lag_s.observe)
        try:
            restart = self.maintenance.restart
            parts = (self._link.run(), self._reap(), self.maintenance.spare.run(), self._say_alive(), lag)
            await run_until_first(stop.wait(), restart.wait(), *parts)
            return restart.is_set() and not stop.is_set()
        finally:
            if not self.maintenance.restart.is_set():  # to a service manager an update is no stop
                self._notifier.stopping()
            log.info("stopping", stages=len(self.table.loaded()))
            await self._end()
            log.info("stopped")

    async def _reap(self) -> None:
        await self.table.reap_idle()
        await asyncio.Event().wait()  # reaping is off: nothing to do, and no reason to end

    async def _say_alive(self) -> None:
        """Tell the service manager that the loop turns. A blocked loop says nothing and is restarted."""
        interval_s = self._notifier.watchdog_interval_s
        while interval_s:
            self._notifier.alive()
            await asyncio.sleep(interval_s)
        await asyncio.Event().wait()

    async def _end(self) -> None:
        try:
            async with asyncio.timeout(STOP_S):
                await asyncio.gather(self.table.end_all(), self.maintenance.covers.end())
        except TimeoutError:
            log.error("stages did not end in time and are killed", within_s=STOP_S)
        if self._listener is not None:
            await asyncio.to_thread(self._listener.close)
        await self._host.close()
        for connection in self._connections:
            await connection.close()
