"""One fellow's life: everything runs beside everything until a stop, then every stage ends and nothing stays behind."""

import asyncio

import grpc
import structlog
from swarm_rpc.race import run_until_first

from swarm_fellow.flows.link import LeaderLink
from swarm_fellow.flows.stages import StageTable
from swarm_fellow.host.notify import ServiceNotifier
from swarm_fellow.host.stage_process import StageHost

log = structlog.get_logger()

STOP_S = 12.0  # a stage is killed after 10 s; what is left then gets 5 s more, and systemd waits 20


class Fellow:
    """The parts of one fellow, run together."""

    def __init__(
        self,
        link: LeaderLink,
        table: StageTable,
        host: StageHost,
        transfer_channel: grpc.aio.Channel,
        notifier: ServiceNotifier,
    ) -> None:
        self.table = table
        self._link = link
        self._host = host
        self._transfer_channel = transfer_channel
        self._notifier = notifier

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until `stop` is set, then end every stage within 17 s. Raises what a part died of, once all ended."""
        self._notifier.ready()
        try:
            await run_until_first(stop.wait(), self._link.run(), self._reap(), self._say_alive())
        finally:
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
                await self.table.end_all()
        except TimeoutError:
            log.error("stages did not end in time and are killed", within_s=STOP_S)
        await self._host.close()
        await self._transfer_channel.close()
