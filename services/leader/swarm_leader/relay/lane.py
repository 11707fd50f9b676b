"""One lane of the relay: a bounded queue between one sender and one receiver, in one epoch. No gRPC."""

import asyncio
from collections import deque
from dataclasses import dataclass

from swarm_core.errors import BadFrame, LinkBroken, Overloaded, SwarmError


@dataclass(frozen=True)
class LaneLimits:
    """Bounds of one lane. A full lane makes its sender wait, then breaks with a reason."""

    frames_max: int = 64
    payload_bytes_max: int = 64 * 2**20
    queued_bytes_max: int = 128 * 2**20
    put_timeout_s: float = 30.0


@dataclass
class Tally:
    """What went through the lanes of a relay."""

    frames: int = 0
    payload_bytes: int = 0


class Lane:
    """Payloads in order, each once. Ends for both sides at once, with the reason."""

    def __init__(self, name: str, epoch: int, limits: LaneLimits, tally: Tally | None = None) -> None:
        self.name = name
        self.epoch = epoch
        self.frames = 0
        self.payload_bytes = 0
        self.attached: set[str] = set()
        self._limits = limits
        self._tally = tally or Tally()
        self._payloads: deque[bytes] = deque()
        self._queued_bytes = 0
        self._ended: SwarmError | None = None
        self._changed = asyncio.Condition()

    async def put(self, payload: bytes) -> None:
        """Queue one payload; waits while the lane is full.

        Raises BadFrame (too large), Overloaded (full for put_timeout_s; the lane ends), or the reason the lane ended.
        """
        if len(payload) > self._limits.payload_bytes_max:
            raise BadFrame(
                f"payload of {len(payload)} bytes on {self.name}; the relay takes {self._limits.payload_bytes_max}",
                bytes=len(payload),
            )
        async with self._changed:
            try:
                async with asyncio.timeout(self._limits.put_timeout_s):
                    await self._changed.wait_for(lambda: self._ended or self._has_room(len(payload)))
            except TimeoutError:
                self._ended = Overloaded(
                    f"{self.name} was full for {self._limits.put_timeout_s:g} s: its receiver does not read"
                )
                self._changed.notify_all()
            if self._ended:
                raise self._ended
            self._payloads.append(payload)
            self._queued_bytes += len(payload)
            self.frames += 1
            self.payload_bytes += len(payload)
            self._tally.frames += 1
            self._tally.payload_bytes += len(payload)
            self._changed.notify_all()

    async def get(self) -> bytes:
        """The next payload; waits for one. Raises the reason the lane ended."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended or self._payloads)
            if self._ended:
                raise self._ended
            payload = self._payloads.popleft()
            self._queued_bytes -= len(payload)
            self._changed.notify_all()
            return payload

    async def wait_ended(self) -> None:
        """Return never; raise the reason the lane ended as soon as it does."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._ended)
        assert self._ended
        raise self._ended

    async def end(self, why: SwarmError) -> None:
        """End the lane for whoever is still attached; the first reason stands. What is queued is dropped."""
        async with self._changed:
            self._ended = self._ended or why
            self._payloads.clear()
            self._queued_bytes = 0
            self._changed.notify_all()

    async def lose(self, role: str) -> None:
        """One end is gone: so is the lane."""
        self.attached.discard(role)
        await self.end(LinkBroken(f"the {role} of {self.name} is gone", lane=self.name))

    @property
    def ended(self) -> SwarmError | None:
        """Why it ended; None while it lives."""
        return self._ended

    def _has_room(self, payload_bytes: int) -> bool:
        fits = self._queued_bytes + payload_bytes <= self._limits.queued_bytes_max
        return len(self._payloads) < self._limits.frames_max and (fits or not self._payloads)
