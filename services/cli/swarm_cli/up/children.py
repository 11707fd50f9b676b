"""Processes that start, are watched and end together. Knows nothing of what they do."""

import asyncio
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import psutil
from swarm_core.errors import SwarmError

from swarm_cli.up.plan import LEADER, ChildSpec

T = TypeVar("T")
STOP_S = 12.0  # from SIGTERM to SIGKILL; a fellow gives its stages 10 s
LEADER_LAST_S = 8.0  # the leader is asked after the others, so that they can say goodbye
TAIL_LINES = 20


class ChildDied(SwarmError):
    """A process ended by itself; the message has its exit code and the end of its log."""


@dataclass
class Child:
    """One running process."""

    spec: ChildSpec
    running: asyncio.subprocess.Process

    @property
    def has_ended(self) -> bool:
        """It is gone and reaped."""
        return self.running.returncode is not None


class Children:
    """Every process of one supervisor, by name in the order of their start."""

    def __init__(self) -> None:
        self._children: dict[str, Child] = {}
        self._ended: asyncio.Queue[Child] = asyncio.Queue()  # one entry per child at most
        self._watchers: set[asyncio.Task[None]] = set()

    async def start(self, spec: ChildSpec) -> None:
        """Start one, bound to this process's life; one of the same name that ended is replaced, and its log goes on.

        With a log it gets a session of its own, out of reach of Ctrl-C.
        """
        command = (sys.executable, "-m", "swarm_cli.up.child", str(os.getpid()), *spec.arguments)
        if spec.log is None:
            running = await asyncio.create_subprocess_exec(*command, env=dict(spec.environ))
        else:
            spec.log.parent.mkdir(parents=True, exist_ok=True)
            with spec.log.open("ab" if spec.name in self._children else "wb") as log:
                running = await asyncio.create_subprocess_exec(
                    *command,
                    env=dict(spec.environ),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=asyncio.subprocess.STDOUT,
                    start_new_session=True,
                )
        child = Child(spec, running)
        self._children[spec.name] = child
        watcher = asyncio.create_task(self._watch(child))
        self._watchers.add(watcher)
        watcher.add_done_callback(self._watchers.discard)

    async def start_again(self, name: str) -> None:
        """Start one that ended as it was started before."""
        await self.start(self._children[name].spec)

    def pids(self) -> dict[str, int]:
        """Name -> process id of those that run."""
        return {name: child.running.pid for name, child in self._children.items() if not child.has_ended}

    async def next_death(self) -> ChildDied:
        """Wait until one ends, and say how. facts: "name", and "how" in a few words."""
        return _death_of(await self._ended.get())

    async def while_all_live(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work`. Raises ChildDied as soon as any child ends before it is done."""
        task = asyncio.create_task(work)
        death = asyncio.create_task(self._ended.get())
        try:
            await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise _death_of(death.result())
            if death.done():
                self._ended.put_nowait(death.result())  # at the same moment: whoever watches next is to hear of it
            return task.result()
        finally:
            for waiting in (task, death):
                waiting.cancel()
            await asyncio.gather(task, death, return_exceptions=True)

    async def stop_all(self) -> None:
        """SIGTERM, the leader last; SIGKILL for whatever is left after STOP_S, the children's children included."""
        stop_at_s = time.monotonic() + STOP_S
        descendants = self._descendants()
        leader = self._children.get(LEADER)
        others = [child for child in self._children.values() if child is not leader]
        await _terminate(others, time.monotonic() + LEADER_LAST_S)
        await _terminate([leader] if leader else [], stop_at_s)
        self.kill_all()
        for orphan in descendants:
            if orphan.is_running():
                _kill(orphan.pid)
        await asyncio.gather(*(child.running.wait() for child in self._children.values()))

    def kill_all(self) -> None:
        """SIGKILL for everything that still runs."""
        for child in self._children.values():
            if not child.has_ended:
                _kill(child.running.pid)

    def _descendants(self) -> list[psutil.Process]:
        """Processes our children started; psutil knows them by pid and start time, so a reused pid is never hit."""
        found: list[psutil.Process] = []
        for pid in self.pids().values():
            try:
                found += psutil.Process(pid).children(recursive=True)
            except psutil.NoSuchProcess:
                continue
        return found

    async def _watch(self, child: Child) -> None:
        await child.running.wait()
        self._ended.put_nowait(child)


def _death_of(child: Child) -> ChildDied:
    return ChildDied(death_text(child), name=child.spec.name, how=how_ended(child))


def death_text(child: Child) -> str:
    """How a child ended, with the end of its log."""
    code = child.running.returncode or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else how_ended(child)
    text = f"{child.spec.name} {how}"
    if child.spec.log is None:
        return text
    tail = log_tail(child.spec.log)
    return f"{text}; the end of {child.spec.log}:\n{tail}" if tail else f"{text}; its log {child.spec.log} is empty"


def how_ended(child: Child) -> str:
    """How a child ended, in a few words."""
    code = child.running.returncode or 0
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def log_tail(log: Path, lines: int = TAIL_LINES) -> str:
    """The last lines of a log, indented."""
    with log.open(errors="replace") as file:
        return "".join(f"  {line}" for line in deque(file, maxlen=lines)).rstrip()


async def _terminate(children: list[Child], until_s: float) -> None:
    """SIGTERM to those that run, and wait for them until then (monotonic seconds)."""
    waiting = [child for child in children if not child.has_ended]
    for child in waiting:
        child.running.terminate()
    if waiting:
        exits = [asyncio.create_task(child.running.wait()) for child in waiting]
        await asyncio.wait(exits, timeout=max(0.0, until_s - time.monotonic()))
        for pending in exits:
            pending.cancel()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
