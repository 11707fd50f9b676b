"""The figures of every stage of a ring, looked at all the time, and what must hold of them at any moment."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from silentswarm.core.v1 import stage_pb2

from tests.integration.ring.stages import StageRing

LOOK_S = 0.03
# Beyond weights and KV: buffers of forwards and messages, and what the allocator keeps of both; seen: 24 MiB in all.
# A position of the spelled llama is 16 KiB on a stage of two layers, so a leak of every session soon passes this.
WORKING_BYTES = 32 * 2**20


class Watch:
    """`async with`: looks from the start to the end. Nothing may run on the ring when it begins."""

    def __init__(self, ring: StageRing) -> None:
        self._ring = ring
        self._looking: asyncio.Task[None] | None = None
        self.before: list[stage_pb2.StageStatus] = []
        self.looks: list[list[stage_pb2.StageStatus]] = []

    async def __aenter__(self) -> "Watch":
        self.before = await statuses(self._ring)
        self._looking = asyncio.ensure_future(self._look())
        return self

    async def __aexit__(self, *failure: object) -> None:
        assert self._looking
        if self._looking.done():
            self._looking.result()
        self._looking.cancel()
        with suppress(asyncio.CancelledError):
            await self._looking

    def assert_within_budget(self) -> None:
        """At no look was more reserved than there is, more held than reserved, or more memory taken than planned."""
        for look in self.looks:
            first = look[0]
            assert first.kv_tokens_reserved <= first.kv_tokens_max
            for status in look:
                assert status.kv_tokens_used <= first.kv_tokens_max
            assert first.kv_tokens_used <= first.kv_tokens_reserved
        for index, stage in enumerate(self._ring.stages):
            kv_bytes = self.before[0].kv_tokens_max * stage.loaded.kv_bytes_per_token
            grown_bytes = max(look[index].memory_bytes for look in self.looks) - self.before[index].memory_bytes
            assert grown_bytes <= kv_bytes + WORKING_BYTES, f"stage {index} grew by {grown_bytes / 2**20:.0f} MiB"

    async def _look(self) -> None:
        while True:
            self.looks.append(await statuses(self._ring))
            await asyncio.sleep(LOOK_S)


async def statuses(ring: StageRing) -> list[stage_pb2.StageStatus]:
    """Live figures of every stage."""
    return list(await asyncio.gather(*(ring.status(index) for index in range(len(ring.stages)))))


async def until_free(ring: StageRing, timeout_s: float = 10.0) -> list[stage_pb2.StageStatus]:
    """Wait until no stage holds a session, a position or a reservation."""
    return await until_statuses(ring, lambda all_of: all(is_free(status) for status in all_of), timeout_s)


def is_free(status: stage_pb2.StageStatus) -> bool:
    """Nothing is held or reserved, nobody waits."""
    return not (status.sessions or status.kv_tokens_used or status.kv_tokens_reserved or status.waiting)


async def until_statuses(
    ring: StageRing, holds: Callable[[list[stage_pb2.StageStatus]], bool], timeout_s: float = 10.0
) -> list[stage_pb2.StageStatus]:
    """The first figures of which something holds. Raises AssertionError with the last ones."""
    last: list[stage_pb2.StageStatus] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while True:
                last = await statuses(ring)
                if holds(last):
                    return last
                await asyncio.sleep(0.005)
    raise AssertionError(f"not within {timeout_s:g} s: {last}")


async def gathered(*awaitables: Awaitable, timeout_s: float) -> list:
    """All results; nothing may hang longer than timeout_s."""
    async with asyncio.timeout(timeout_s):
        return list(await asyncio.gather(*awaitables))
