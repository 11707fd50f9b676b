"""Progress of long steps on stderr: bars on a terminal, plain lines with elapsed seconds elsewhere. Decides nothing."""

import time
from types import TracebackType
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from swarm_cli.terminal import err

REPEAT_S = 5.0  # a line per step and this often while it lasts: alive, and not a flood in a log file


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
