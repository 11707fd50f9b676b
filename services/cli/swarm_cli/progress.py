"""Progress of long steps on stderr: bars on a terminal, plain lines with elapsed seconds elsewhere. Decides nothing."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from swarm_cli.terminal import err

REPEAT_S = 5.0  # a line per step and this often while it lasts: alive, and not a flood in a log file
TICK_S = 0.25  # how late a second that passed may be seen


class Steps(Protocol):
    """Shows several things that advance at once, each under its own key. Used as a context."""

    def __enter__(self) -> "Steps": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def show(self, key: str, step: str, done: int = 0, total: int = 0) -> None:
        """Say where `key` is. total: same unit as done; 0 is unknown."""


def steps(started_s: float | None = None) -> Steps:
    """The form that fits stderr. started_s: where plain lines count their seconds from, monotonic; None is now."""
    console = err()
    if console.is_terminal:
        return BarSteps(console)
    return LineSteps(console, time.monotonic() if started_s is None else started_s)


class BarSteps:
    """One bar for each key."""

    def __init__(self, console: Console) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[share]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        self._bars: dict[str, TaskID] = {}

    def __enter__(self) -> "BarSteps":
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, key: str, step: str, done: int = 0, total: int = 0) -> None:
        if key not in self._bars:
            self._bars[key] = self._progress.add_task(key, total=None, share="")
        self._progress.update(
            self._bars[key],
            description=f"{key} {step}",
            completed=done,
            total=total or None,
            share=share_of(done, total),
        )


class LineSteps:
    """A line when a step begins, and one every few seconds while it lasts."""

    def __init__(self, console: Console, started_s: float) -> None:
        self._console = console
        self._started_s = started_s
        self._shown: dict[str, tuple[str, float]] = {}

    def __enter__(self) -> "LineSteps":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def show(self, key: str, step: str, done: int = 0, total: int = 0) -> None:
        now_s = time.monotonic()
        last_step, last_s = self._shown.get(key, ("", now_s))
        if last_step == step and now_s - last_s < REPEAT_S:
            return
        self._shown[key] = (step, now_s)
        line = f"[{now_s - self._started_s:6.1f} s] {key} {step} {share_of(done, total)}".rstrip()
        self._console.print(line, markup=False)


def share_of(done: int, total: int) -> str:
    """ "42 %", or nothing while the total is unknown or the step is a single one."""
    return f"{min(100, 100 * done // total)} %" if total > 1 else ""


class Notice:
    """What a reply waits for, and since when: one line that replaces itself and is wiped away at the end.

    Where no line can be replaced, a line for each change.
    """

    def __init__(self, console: Console, now_s: Callable[[], float] = time.monotonic) -> None:
        """now_s: a monotonic clock."""
        self._console = console
        self._replaces = console.is_terminal and not console.is_dumb_terminal
        self._now_s = now_s
        self._words = ""
        self._began_s = self._due_s = now_s()
        self._every_s = float("inf")
        self._drawn = ""
        self.is_behind_text = False  # the cursor is at the end of what a person is to keep

    def begin(self, words: str, after_s: float, every_s: float) -> None:
        """Wait for something new; its seconds count from here.

        after_s: a wait that is over by then is never mentioned. every_s: how often a line is said again where it
        cannot be replaced.
        """
        self.clear()
        self._words, self._began_s, self._every_s = words, self._now_s(), every_s
        self._due_s = self._began_s + after_s

    def change(self, words: str) -> None:
        """The same wait, or a new one, in these words, at once; said once where it cannot be replaced."""
        if not self._words:
            self._began_s = self._now_s()
        if words != self._words:
            self._words, self._due_s, self._every_s = words, self._now_s(), float("inf")
            self.draw()

    def clear(self) -> None:
        """The wait is over."""
        self._words = ""
        if self._drawn:
            self._write("\r\x1b[2K")
            self._drawn = ""

    def draw(self) -> None:
        """Bring what is seen up to date."""
        now_s = self._now_s()
        if not self._words or now_s < self._due_s:
            return
        line = f"{self._words} ({int(now_s - self._began_s)} s)"
        if not self._replaces:
            self._due_s = now_s + self._every_s
            self._write(f"{line}\n")
            return
        line = line[: self._console.width - 1]
        if line != self._drawn:
            self._drawn = line
            self._write(f"\n{line}" if self.is_behind_text else f"\r\x1b[2K{line}")
            self.is_behind_text = False

    def _write(self, characters: str) -> None:
        """Past rich, which would wrap the line and not know that another replaces it."""
        self._console.file.write(characters)
        self._console.file.flush()


@asynccontextmanager
async def noticing() -> AsyncIterator[Notice]:
    """A notice on stderr whose seconds run on by themselves; wiped away at the end, however that comes."""
    notice = Notice(err())

    async def run_on() -> None:
        while True:
            await asyncio.sleep(TICK_S)
            notice.draw()

    clock = asyncio.create_task(run_on())
    try:
        yield notice
    finally:
        clock.cancel()
        notice.clear()
