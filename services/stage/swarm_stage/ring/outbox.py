"""Batches that wait for the link to the next stage. Knows frames and ends; sends nothing."""

import asyncio
from collections import deque

from silentswarm.ring.v1 import ring_pb2


class Outbox:
    """In order, but for ends: they go first, together, and what still waits of their sessions is not sent at all.

    So what waits is what running sessions have on their way, however long the link is stuck and however many callers
    give up meanwhile. Event loop only.
    """

    def __init__(self, batches_max: int) -> None:
        self._batches_max = batches_max
        self._waiting: deque[ring_pb2.FrameBatch] = deque()
        self._filled = asyncio.Event()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, batch: ring_pb2.FrameBatch) -> bool:
        """Add a batch, which is the outbox's own from now on; False when it is full."""
        if _is_of_ends(batch):
            self._forget({frame.session for frame in batch.frames})
            if self._waiting and _is_of_ends(self._waiting[0]):
                self._waiting[0].frames.extend(batch.frames)
            else:
                self._waiting.appendleft(batch)
        elif len(self._waiting) >= self._batches_max:
            return False
        else:
            self._waiting.append(batch)
        self._filled.set()
        return True

    async def take(self, batches_max: int, bytes_max: int) -> list[ring_pb2.FrameBatch]:
        """The next batches; waits for one. More than one only up to bytes_max, all together."""
        while not self._waiting:
            self._filled.clear()
            await self._filled.wait()
        taken = [self._waiting.popleft()]
        left_bytes = bytes_max - taken[0].ByteSize() if self._waiting else 0
        while self._waiting and len(taken) < batches_max:
            left_bytes -= self._waiting[0].ByteSize()
            if left_bytes < 0:
                break
            taken.append(self._waiting.popleft())
        return taken

    def _forget(self, sessions: set[int]) -> None:
        """Take out what waits of these sessions."""
        for batch in self._waiting:
            if _is_of_ends(batch):
                continue
            for place in reversed(range(len(batch.frames))):
                if batch.frames[place].session in sessions:
                    del batch.frames[place]
        self._waiting = deque(batch for batch in self._waiting if batch.frames)


def _is_of_ends(batch: ring_pb2.FrameBatch) -> bool:
    """An End travels in a batch of Ends, so the first frame tells."""
    return bool(batch.frames) and batch.frames[0].HasField("end")
