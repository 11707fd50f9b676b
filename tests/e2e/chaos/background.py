"""A loop on a thread of its own: streams are read and lines are cut while a test waits for processes."""

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")
DO_S = 30.0


class Background:
    """Use as `with Background() as background`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="chaos", daemon=True)

    def start(self, work: Coroutine[Any, Any, T]) -> "Future[T]":
        """Begin, and go on."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def do(self, work: Coroutine[Any, Any, T], within_s: float = DO_S) -> T:
        """Wait for its answer. Raises TimeoutError."""
        return self.start(work).result(within_s)

    def __enter__(self) -> "Background":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DO_S)
        self._loop.close()

    async def _end(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
