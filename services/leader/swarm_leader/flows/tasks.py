"""Background work with an owner: every task is kept, its failure logged, and all end with the leader."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

import structlog

T = TypeVar("T")
log = structlog.get_logger()
AGAIN_S = 1.0  # shorter than any lease: one of what is begun again judges them


class TaskSet:
    """Tasks that outlive whoever began them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run it; the name is for the log."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._finish)
        return task

    def keep(self, work: Callable[[], Coroutine[Any, Any, None]], name: str) -> asyncio.Task[Any]:
        """Run what never ends by itself; when it fails, as it should not, it is begun again."""
        return self.start(begin_again(work, name), name)

    async def complete(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Run it and return what it returns; when the caller is cancelled it still runs to its end."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._finish)  # nobody else hears how it ends
            raise

    async def close(self) -> None:
        """Cancel all and wait for their ends."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _finish(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("background work failed", work=task.get_name(), exc_info=task.exception())


async def begin_again(work: Callable[[], Coroutine[Any, Any, None]], name: str, again_s: float = AGAIN_S) -> None:
    """Run it until it ends well; each time that it fails it is begun again, and ends nothing else."""
    while True:
        try:
            await work()
            return
        except Exception:
            log.exception("work that never ends failed and is begun again", work=name)
        await asyncio.sleep(again_s)


async def gather_all(works: Iterable[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Run all at the same time; at the first failure end the others, then raise it. Results in order."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        for task in done:
            task.result()  # raises what failed
        return [task.result() for task in tasks]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
