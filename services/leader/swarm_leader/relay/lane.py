"""One lane of the relay: a bounded queue between one sender and one receiver, in one epoch. No gRPC."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from swarm_core.errors import BadFrame, LinkBroken, Overloaded, SwarmError


@dataclass(frozen=True)
class LaneLimits:
    """Bounds of one lane. A full lane makes its sender wait, then breaks with a reason."""

    frames_max: int = 64
    payload_bytes_max: int = 64 * 2**20
    queued_bytes_max: int = 128 * 2**20
    put_timeout_s: float = 30.0
    total_bytes_max: int = 2**30  # over all lanes of a relay


@dataclass
class Tally:
    """What went through the lanes of a relay. refused: ends turned away for their ticket. queued_bytes: held now."""

    frames: int = 0
    payload_bytes: int = 0
    refused: int = 0
    queued_bytes: int = 0


# Makes room for so many bytes more in all lanes together, at the cost of the lane that holds the most.
MakeRoom = Callable[[int], None]


class Lane:
    """Payloads in order, each once. Ends for both sides at once, with the reason. Event loop only."""

    def __init__(
        self, name: str, epoch: int, limits: LaneLimits, tally: Tally | None = None, make_room: MakeRoom | None = None
    ) -> None:
        """tally: shared by the lanes of a relay. make_room: asked before anything is queued."""
        self.name = name
        self.epoch = epoch
        self.attached: set[str] = set()
        self._tally = tally or Tally()
        self._make_room = make_room or (lambda more_bytes: None)
        self._limits = limits
        self._payloads: deque[bytes] = deque()
        self._queued_bytes = 0
        self._ended: SwarmError | None = None
        self._is_receiver_done = False
        self._filled, self._room, self._over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def put(self, payload: bytes) -> None:
        """Queue one payload; waits while the lane is full.

        Raises BadFrame (too large), Overloaded (full for put_timeout_s; the lane ends), or the reason the lane ended.
        """
        if len(payload) > self._limits.payload_bytes_max:
            raise BadFrame(
                f"payload of {len(payload)} bytes on {self.name}; the relay takes {self._limits.payload_bytes_max}",
                bytes=len(payload),
            )
        if not self._ended and not self._has_room(len(payload)):
            await self._wait_for_room(len(payload))
        if not self._ended:
            self._make_room(len(payload))
        if self._ended:
            raise self._ended
        self._payloads.append(payload)
        self._count(len(payload))
        self._tally.frames += 1
        self._tally.payload_bytes += len(payload)
        self._filled.set()

    async def get_bundle(self, count_max: int = 1, bytes_max: int = 0) -> list[bytes]:
        """The next payloads; waits for one. More than one only up to bytes_max. Empty: the receiver wants no more.

        Raises the reason the lane ended.
        """
        while not self._payloads and not self._ended and not self._is_receiver_done:
            self._filled.clear()
            await self._filled.wait()
        if self._ended:
            raise self._ended
        bundle: list[bytes] = []
        taken_bytes = 0
        while self._payloads and len(bundle) < count_max:
            taken_bytes += len(self._payloads[0])
            if bundle and taken_bytes > bytes_max:
                break
            bundle.append(self._payloads.popleft())
            self._count(-len(bundle[-1]))
        self._room.set()
        return bundle

    def stop_receiving(self) -> None:
        """The receiver has closed its side; a waiting get_bundle returns with nothing."""
        self._is_receiver_done = True
        self._filled.set()

    async def wait_ended(self) -> None:
        """Return never; raise the reason the lane ended as soon as it does."""
        await self._over.wait()
        assert self._ended
        raise self._ended

    def end(self, why: SwarmError) -> None:
        """End the lane for whoever is still attached; the first reason stands. What is queued is dropped."""
        self._ended = self._ended or why
        self._payloads.clear()
        self._count(-self._queued_bytes)
        for event in (self._filled, self._room, self._over):
            event.set()

    def lose(self, role: str) -> None:
        """One end is gone: so is the lane."""
        self.attached.discard(role)
        self.end(LinkBroken(f"the {role} of {self.name} is gone", lane=self.name))

    @property
    def queued_bytes(self) -> int:
        """What it holds."""
        return self._queued_bytes

    @property
    def ended(self) -> SwarmError | None:
        """Why it ended; None while it lives."""
        return self._ended

    def _count(self, more_bytes: int) -> None:
        self._queued_bytes += more_bytes
        self._tally.queued_bytes += more_bytes

    async def _wait_for_room(self, payload_bytes: int) -> None:
        """Until a payload fits or the lane ends, which it does when this takes too long."""
        try:
            async with asyncio.timeout(self._limits.put_timeout_s):
                while not self._ended and not self._has_room(payload_bytes):
                    self._room.clear()
                    await self._room.wait()
        except TimeoutError:
            limit_s = self._limits.put_timeout_s
            self.end(Overloaded(f"{self.name} was full for {limit_s:g} s: its receiver does not read"))

    def _has_room(self, payload_bytes: int) -> bool:
        fits = self._queued_bytes + payload_bytes <= self._limits.queued_bytes_max
        return len(self._payloads) < self._limits.frames_max and (fits or not self._payloads)
