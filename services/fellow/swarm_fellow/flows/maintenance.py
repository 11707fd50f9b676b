"""STOP, PURGE and UPDATE: every stage ends; then the model cache is emptied, or the program starts anew."""

import asyncio

import structlog

from swarm_fellow.flows.covers import Covers
from swarm_fellow.flows.load import Loader
from swarm_fellow.flows.spare import SpareKeeper
from swarm_fellow.flows.stages import StageTable
from swarm_fellow.host.weights.cache_room import CacheRoom

log = structlog.get_logger()


class Maintenance:
    """What a fellow is asked to do with itself. restart: set once it is to start anew; whoever set it has told why."""

    def __init__(self, table: StageTable, loader: Loader, covers: Covers, spare: SpareKeeper, room: CacheRoom) -> None:
        self._table = table
        self._loader = loader
        self.covers = covers
        self.spare = spare
        self._room = room
        self.restart = asyncio.Event()

    async def end_stages(self) -> None:
        """Give up every load, and end every stage, cover and the spare."""
        await self._loader.call_off()
        await asyncio.gather(self._table.end_all(), self.covers.end())
        await self.spare.end()

    async def purge(self) -> None:
        """End every stage and drop every cached file that no other fellow of this machine uses."""
        await self.end_stages()
        dropped_bytes = await asyncio.to_thread(self._room.empty)
        log.info("the model cache was emptied on request", dropped_bytes=dropped_bytes)
