"""An event loop whose clock jumps to whatever is due next, so that hours of waits take no time. For tests only."""

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class _Jumping(selectors.SelectSelector):
    """Waits for nothing: tells how long would have been waited."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 1000.0

    def select(self, timeout: float | None = None) -> Any:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("everything waits for something that never comes")
        if not ready and timeout:
            self.now_s += timeout
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    """Time passes only while nothing else can be done; work for threads is done at once, in its place."""

    def __init__(self) -> None:
        self.virtual = _Jumping()
        super().__init__(self.virtual)

    def time(self) -> float:
        return self.virtual.now_s

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> "asyncio.Future[Any]":
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class VirtualClock:
    """The leader's clock on such a loop."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def monotonic_s(self) -> float:
        """Seconds of the loop."""
        return self._loop.time()

    def unix_s(self) -> float:
        """The same, as if the world began in 2023."""
        return 1.7e9 + self._loop.time()
