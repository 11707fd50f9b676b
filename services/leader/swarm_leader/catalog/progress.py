"""Where an import is, told to whoever waits for it: seldom, and on the event loop's thread."""

import asyncio
import threading
from collections.abc import Callable

OnProgress = Callable[[str, int, int], None]  # step, done, total; 0 in all means unknown
EVERY_S = 0.3  # what a person sees as moving


class Progress:
    """Passes on the newest report of every step, at most once in 0.3 s; none is kept back for longer.

    Any thread may report. Nothing is told after close().
    """

    def __init__(self, on_progress: OnProgress, every_s: float = EVERY_S) -> None:
        self._on_progress = on_progress
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._newest: dict[str, tuple[int, int]] = {}  # step -> done, total; in the order the steps began
        self._is_waiting = False
        self._timer: asyncio.TimerHandle | None = None

    def report(self, step: str, done: int, total: int) -> None:
        """Say where a step is."""
        with self._lock:
            self._newest[step] = (done, total)
            if self._is_waiting:
                return
            self._is_waiting = True
        self._loop.call_soon_threadsafe(self._tell)

    def close(self) -> None:
        """Tell what is left, at once."""
        if self._timer is not None:
            self._timer.cancel()
        self._flush()
        with self._lock:
            self._is_waiting = True  # for nobody: later reports go nowhere

    def _tell(self) -> None:
        if self._flush():
            self._timer = self._loop.call_later(self._every_s, self._tell)

    def _flush(self) -> bool:
        """Whether there was anything; if not, the next report is told at once."""
        with self._lock:
            newest, self._newest = self._newest, {}
            self._is_waiting = bool(newest)
        for step, (done, total) in newest.items():
            self._on_progress(step, done, total)
        return bool(newest)
