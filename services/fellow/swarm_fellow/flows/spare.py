"""Keeps one spare stage process while this machine holds a stage, so that the next load is quick. Loads nothing."""

import asyncio

import structlog
from swarm_core.clock import Clock
from swarm_core.errors import SwarmError

from swarm_fellow.domain.spare import has_room, linger_s, retry_after_s
from swarm_fellow.flows.covers import Covers
from swarm_fellow.flows.stages import StageTable
from swarm_fellow.host.cgroup import memory_left_bytes
from swarm_fellow.host.hardware import read_processor
from swarm_fellow.host.stage_process import StageHost, StageProcess

log = structlog.get_logger()

POLL_S = 1.0
QUIET_S = 5.0  # after a load; a model that has just become ready gets the processor first
STEADY_S = 60.0  # a spare that lived so long was a good one


class SpareKeeper:
    """Decides every second whether there shall be a spare.

    mode: "auto", "on" or "off". lent_bytes: main memory that this machine lends, 0 is what is available.
    quiet_s: how long after the last load a spare is started.
    """

    def __init__(
        self,
        host: StageHost,
        table: StageTable,
        mode: str,
        clock: Clock,
        covers: Covers,
        lent_bytes: int,
        quiet_s: float = QUIET_S,
    ) -> None:
        self._host = host
        self._table = table
        self._mode = mode
        self._clock = clock
        self._covers = covers
        self._lent_bytes = lent_bytes
        self.quiet_s = quiet_s
        self._starting: asyncio.Task[StageProcess] | None = None
        self._ready_s: float | None = None  # when the spare that there should be became ready
        self._failures = 0
        self._not_before_s = float("-inf")
        self._loading_s = float("-inf")
        self._held_s = float("-inf")
        self._starts_seen = 0

    @property
    def is_ready(self) -> bool:
        """Whether the next load finds a spare."""
        return self._host.spare is not None

    async def run(self) -> None:
        """Until cancelled; with "off" it only waits."""
        if self._mode == "off":
            await asyncio.Event().wait()
        try:
            while True:
                await self._step()
                await asyncio.sleep(POLL_S)
        finally:
            await self.end()

    async def end(self) -> None:
        """End the spare, also one that is starting; the next one comes with the next stage."""
        self._held_s, self._ready_s = float("-inf"), None
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
            self._starting = None
        await self._host.end_spare()

    async def _step(self) -> None:
        now_s = self._clock.monotonic_s()
        self._look(now_s)
        is_there = self._host.spare is not None or self._starting is not None
        is_due = now_s - self._held_s <= linger_s(self._table.last_end_crashed)
        if not is_due or not has_room(self._mode, self._free_bytes(), is_there):
            if is_there:
                log.info("the spare stage process ends", why="no stage is held" if not is_due else "memory is short")
                await self.end()
            return
        if not is_there and now_s >= self._not_before_s and now_s - self._loading_s >= self.quiet_s:
            self._starting = asyncio.create_task(self._host.prepare_spare())

    def _free_bytes(self) -> int | None:
        """Main memory free now; not looked up where nothing depends on it."""
        if self._mode != "auto":
            return None
        held_bytes = self._table.memory_bytes() + self._covers.memory_bytes()
        return read_processor(self._lent_bytes, held_bytes, memory_left_bytes()).memory_free_bytes

    def _look(self, now_s: float) -> None:
        """What happened since the last look."""
        if self._table.is_loading() or self._covers.is_making() or self._table.starts != self._starts_seen:
            self._starts_seen, self._loading_s, self._held_s = self._table.starts, now_s, now_s
        if self._table.loaded() or self._covers.count():
            self._held_s = now_s
        if self._starting is not None and self._starting.done():
            self._take_start(self._starting, now_s)
            self._starting = None
        elif self._ready_s is not None and self._host.spare is None:  # taken by a load, or dead
            if self._host.spare_ended:
                self._take_failure(now_s, "it ended by itself")
            self._ready_s = None

    def _take_start(self, starting: "asyncio.Task[StageProcess]", now_s: float) -> None:
        if not starting.cancelled() and (error := starting.exception()) is not None:
            self._take_failure(now_s, error.message if isinstance(error, SwarmError) else repr(error))
            return
        self._ready_s = now_s

    def _take_failure(self, now_s: float, why: str) -> None:
        lasted_s = now_s - self._ready_s if self._ready_s is not None else 0.0
        self._failures = 1 if lasted_s >= STEADY_S else self._failures + 1
        wait_s = retry_after_s(self._failures)
        self._not_before_s = now_s + wait_s
        log.warning("no spare stage process", why=why, again_in_s=wait_s)
