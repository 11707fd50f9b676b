"""The leader's end of a stream to a fellow: a bounded queue down, and one end with one reason. No gRPC."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from swarm_core.errors import FellowLost, SwarmError

Message = TypeVar("Message")
OUTGOING_MAX = 1024  # messages a fellow may be behind; signals and requests are few, so more means it does not read


class Link(Generic[Message]):
    """One open stream. Ends once; whoever waits on it hears the reason at once."""

    def __init__(self, fellow_id: str, fellow_name: str) -> None:
        self.fellow_id = fellow_id
        self.fellow_name = fellow_name
        self._outgoing: deque[Message] = deque()
        self._wake = asyncio.Event()
        self._ended: SwarmError | None = None
        self._on_end: list[Callable[[SwarmError], None]] = []

    @property
    def ended(self) -> SwarmError | None:
        """Why it ended; None while it is open."""
        return self._ended

    def when_ended(self, call: Callable[[SwarmError], None]) -> None:
        """Call this when the link ends; at once if it has."""
        if self._ended is not None:
            call(self._ended)
        else:
            self._on_end.append(call)

    def send(self, message: Message) -> None:
        """Queue a message down. Raises FellowLost when the link is over, or so far behind that it counts as broken."""
        if self._ended is None and len(self._outgoing) >= OUTGOING_MAX:
            self.end(FellowLost(f"fellow {self.fellow_name} does not read its link; {OUTGOING_MAX} messages wait"))
        if self._ended is not None:
            raise FellowLost(f"fellow {self.fellow_name}: {self._ended.message}", fellow=self.fellow_name)
        self._outgoing.append(message)
        self._wake.set()

    async def next(self) -> Message:
        """The next message to put on the wire. One caller. Raises the reason when the link ends."""
        while True:
            if self._ended is not None:
                raise self._ended
            if self._outgoing:
                return self._outgoing.popleft()
            self._wake.clear()
            await self._wake.wait()

    def end(self, why: SwarmError) -> None:
        """The stream is over. The first reason stands."""
        if self._ended is not None:
            return
        self._ended = why
        self._outgoing.clear()
        self._wake.set()
        calls, self._on_end = self._on_end, []
        for call in calls:
            call(why)
