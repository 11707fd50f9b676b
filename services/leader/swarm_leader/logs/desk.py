"""Takes lines of fellows, keeps them and hands them on. Whoever sent them waits for the disk, and nobody else."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import structlog
from swarm_core.clock import Clock
from swarm_core.secrets import redacted

from swarm_leader.logs.files import LogFiles, LogLine

log = structlog.get_logger()
LINES_MAX = 1000  # taken of one batch
TEXT_MAX, SOURCE_MAX = 2000, 128  # characters
CHARACTERS_MAX = 4096  # whose writing is remembered
BEHIND_MAX = 1000  # lines that a follower may be behind
LEADER = "leader"


class Follower:
    """Lines as they come; one that reads too slowly misses the oldest, and is told how many."""

    def __init__(self) -> None:
        self._lines: deque[LogLine] = deque()
        self._wake = asyncio.Event()
        self._missed = 0
        self._is_over = False

    def put(self, line: LogLine) -> None:
        """One more."""
        if len(self._lines) >= BEHIND_MAX:
            self._lines.popleft()
            self._missed += 1
        self._lines.append(line)
        self._wake.set()

    def end(self) -> None:
        """No more come."""
        self._is_over = True
        self._wake.set()

    async def lines(self) -> AsyncIterator[LogLine]:
        """Until there are no more."""
        while True:
            while self._lines:
                line = self._lines.popleft()
                if self._missed:
                    missed, self._missed = self._missed, 0
                    yield LogLine(
                        line.number - 1, line.at_s, LEADER, f"({missed} lines came faster than they were read)"
                    )
                yield line
            if self._is_over:
                return
            self._wake.clear()
            await self._wake.wait()


class LogDesk:
    """One for all fellows. The disk has a thread of its own: one that hangs holds up nothing else."""

    def __init__(self, files: LogFiles, clock: Clock) -> None:
        self._files = files
        self._clock = clock
        self._numbers: dict[str, int] = {}
        self._followers: dict[str, set[Follower]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="logs")
        self._is_full = False

    async def take(self, fellow_id: str, lines: Iterable[tuple[str, str]], dropped: int = 0) -> int:
        """Lines of a fellow: source and text. dropped: how many it lost before these. Returns how many were taken."""
        if fellow_id not in self._numbers:
            last = await self._on_disk(self._files.last_number, fellow_id)
            self._numbers.setdefault(fellow_id, last)
        now_s = self._clock.unix_s()
        told = list(lines)[:LINES_MAX]
        if dropped:
            told.insert(0, (LEADER, f"({dropped} lines were written faster than they could be sent)"))
        cleaned, taken = await self._on_disk(_clean, told), []  # megabytes of escapes take a while
        if fellow_id not in self._numbers:
            return 0  # it was deleted meanwhile
        for source, text in cleaned:
            self._numbers[fellow_id] += 1
            taken.append(LogLine(self._numbers[fellow_id], now_s, source, text))
        for follower in self._followers.get(fellow_id, ()):
            for line in taken:
                follower.put(line)
        self._note(await self._on_disk(self._files.append, fellow_id, taken))
        return len(taken)

    async def tail(self, fellow_id: str, count: int, source: str = "") -> list[LogLine]:
        """The last lines kept, oldest first."""
        return await self._on_disk(self._files.tail, fellow_id, count, source)

    @contextlib.contextmanager
    def following(self, fellow_id: str) -> Iterator[Follower]:
        """Every line that comes while the block runs."""
        follower, own = Follower(), self._followers.setdefault(fellow_id, set())
        own.add(follower)
        try:
            yield follower
        finally:
            own.discard(follower)
            if not own and self._followers.get(fellow_id) is own:
                del self._followers[fellow_id]

    def fellow_ids(self) -> set[str]:
        """Whose lines came, or are followed, since the start."""
        return {*self._numbers, *self._followers}

    async def forget_all_but(self, fellow_ids: Iterable[str]) -> None:
        """Forget the logs of fellows that are none of these: they were deleted."""
        kept = set(fellow_ids)
        for fellow_id in [one for one in self._numbers if one not in kept]:
            del self._numbers[fellow_id]
        for fellow_id in [one for one in self._followers if one not in kept]:
            for follower in self._followers[fellow_id]:
                follower.end()
        for fellow_id in await self._on_disk(self._files.fellow_ids):
            if fellow_id not in kept:
                await self._on_disk(self._files.remove, fellow_id)

    def close(self) -> None:
        """Let what is being written be written."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _on_disk(self, work: Callable[..., Any], *facts: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *facts)

    def _note(self, is_written: bool) -> None:
        if not is_written and not self._is_full:
            log.warning("logs of fellows are not kept now: their room on the disk is used up")
        self._is_full = not is_written


def shown(text: str) -> str:
    """A line that does nothing to a terminal: what is not printable is written out."""
    return text if text.isprintable() else text.translate(_SHOWN)


def _clean(lines: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Sources and texts as they are kept. What is beyond that is not looked at, but for secrets that begin before."""
    return [
        (shown(source[:SOURCE_MAX])[:SOURCE_MAX], redacted(shown(text[: 2 * TEXT_MAX]))[:TEXT_MAX])
        for source, text in lines
    ]


class _Shown(dict[int, str]):
    """How each character is written; those met first are remembered."""

    def __missing__(self, code: int) -> str:
        each = chr(code)
        written = each if each.isprintable() or each == "\t" else repr(each)[1:-1]
        if len(self) < CHARACTERS_MAX:
            self[code] = written
        return written


_SHOWN = _Shown()
