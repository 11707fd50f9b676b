"""Statements that are never cut off: a caller that is cancelled leaves, and what it began ends by itself."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
T = TypeVar("T")
END_S = 15.0  # longer than any statement may take


class Uncut:
    """What runs now. A driver that is cancelled in mid-commit loses its connection, of which SQLite has one."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run it to its end, whatever becomes of the caller."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._finish)
        return await asyncio.shield(task)

    async def settle(self) -> None:
        """Until nothing runs, for 15 s at most."""
        if self._running:
            await asyncio.wait(set(self._running), timeout=END_S)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # its caller has heard it, or has left


class HasUncut(Protocol):
    """A store of one database."""

    uncut: Uncut


Self = TypeVar("Self", bound=HasUncut)


def uncut(
    method: Callable[Concatenate[Self, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Self, P], Coroutine[Any, Any, T]]:
    """A method of a store that is never cut off."""

    @wraps(method)
    async def whole(self: Self, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.uncut.run(method(self, *args, **kwargs))

    return whole
