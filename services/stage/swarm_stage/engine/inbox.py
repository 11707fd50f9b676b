"""The one way into the engine thread: a bounded queue, filled by the event loop, emptied by the engine."""

import asyncio
import threading
from collections import deque
from typing import Any


class Inbox:
    """Items in order. The event loop waits while it is full; control items always fit."""

    def __init__(self, loop: asyncio.AbstractEventLoop, items_max: int = 256) -> None:
        self._loop = loop
        self._items_max = items_max
        self._items: deque[Any] = deque()
        self._filled = threading.Condition()
        self._room = asyncio.Event()
        self._room.set()

    async def put(self, item: Any) -> None:
        """Add one item from the event loop; waits while the inbox is full."""
        while True:
            with self._filled:
                if len(self._items) < self._items_max:
                    self._append(item)
                    return
                self._room.clear()
            await self._room.wait()

    def put_now(self, item: Any) -> None:
        """Add a control item (cancel, epoch, halt); few of these exist per session, so they need no bound."""
        with self._filled:
            self._append(item)

    def take(self, wait_s: float | None, items_max: int | None = None) -> list[Any]:
        """What is here, at most items_max. Called by the engine; waits up to wait_s (None: for ever) for the first."""
        with self._filled:
            if wait_s != 0:
                self._filled.wait_for(lambda: self._items, timeout=wait_s)
            count = len(self._items) if items_max is None else min(items_max, len(self._items))
            taken = [self._items.popleft() for _ in range(count)]
        if taken and not self._room.is_set():
            self._loop.call_soon_threadsafe(self._room.set)
        return taken

    def ahead(self) -> list[Any]:
        """What waits behind the items taken last. Called by the engine; takes nothing."""
        with self._filled:
            return list(self._items)

    def _append(self, item: Any) -> None:
        self._items.append(item)
        self._filled.notify()
