"""Whoever waits for a reply, and which replies are somebody's now. Generates nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from swarm_core.errors import Conflict

TAKE_OVER_S = 5.0  # an older call of the same reply ends at once, unless its reader is stuck


class Abandonable(Protocol):
    """What a request stands in: its turn at the gate, then its reply."""

    def abandon(self) -> None:
        """Nobody wants it any more."""


class Caller:
    """Whoever waits for one reply. `leave` ends the request at once, wherever it stands; safe to call at any time.

    owner: id of the token it calls with, "" where none is asked for.
    """

    def __init__(self, request_id: str, owner: str = "") -> None:
        self.request_id = request_id
        self.owner = owner
        self.is_gone = False
        self._stands_in: Abandonable | None = None

    def follow(self, stands_in: Abandonable) -> None:
        """It waits at the gate, or its reply began."""
        self._stands_in = stands_in
        if self.is_gone:
            stands_in.abandon()

    def leave(self) -> None:
        """The caller went away."""
        self.is_gone = True
        if self._stands_in is not None:
            self._stands_in.abandon()


class Callers:
    """Every caller whose reply runs, by request."""

    def __init__(self) -> None:
        self._active: dict[str, Caller] = {}
        self._over: dict[str, asyncio.Event] = {}

    @asynccontextmanager
    async def running(self, caller: Caller, takes_over: bool = False) -> AsyncIterator[None]:
        """Its reply runs while the block does.

        takes_over: it goes on with a reply whose older call it lost; if that one is still there, it ends. Raises
        Conflict while the reply is somebody else's, or runs already.
        """
        request_id = caller.request_id
        if takes_over:
            await self._end_older(caller)
        if request_id in self._active:
            raise Conflict(f"request_id {request_id} is in use by a reply that still runs", field="request_id")
        self._active[request_id], over = caller, asyncio.Event()
        self._over[request_id] = over
        try:
            yield
        finally:
            del self._active[request_id], self._over[request_id]
            over.set()

    async def _end_older(self, caller: Caller) -> None:
        older = self._active.get(caller.request_id)
        if older is None or older.owner != caller.owner:
            return
        older.leave()
        try:
            async with asyncio.timeout(TAKE_OVER_S):
                await self._over[caller.request_id].wait()
        except TimeoutError:
            return
