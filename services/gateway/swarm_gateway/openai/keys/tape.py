"""The pieces of one reply, for as many readers as come, each from the beginning. Makes no reply and keeps no time."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator

from swarm_gateway.openai.replies.pieces import Piece

JOINED_BYTES_MAX = 64 * 2**10  # what a reader that is behind is handed at once
AHEAD_BYTES_MAX = 256 * 2**10  # of a spent tape: what is held for readers that are behind


class Tape:
    """A reply so far.

    Spent, it lets go of its beginning: nobody can begin to read it, the readers there are get the rest, and who writes
    waits for them.
    """

    def __init__(self) -> None:
        self.is_spent = False
        self._frames: deque[bytes] = deque()
        self._first = 0  # which frame of the reply _frames begins with
        self._held_bytes = 0
        self._standing = ""
        self._readers: dict[object, int] = {}  # the next frame of each
        self._is_ended = False
        self._failure: Exception | None = None
        self._news = asyncio.Event()

    @property
    def reader_count(self) -> int:
        """How many read it now."""
        return len(self._readers)

    async def write(self, piece: Piece) -> None:
        """More of the reply."""
        if not piece.frames:
            self._standing = piece.standing
            self._tell()
            return
        self._standing = ""  # it does not wait any more
        self._frames.append(piece.frames)
        self._held_bytes += len(piece.frames)
        self._tell()
        while self.is_spent and self._let_go() > AHEAD_BYTES_MAX:
            await self._news.wait()

    def spend(self) -> None:
        """Let go of the beginning from now on."""
        self.is_spent = True

    def end(self, failure: Exception | None = None) -> None:
        """Nothing follows. failure: what every reader gets after the last piece."""
        self._is_ended, self._failure = True, failure
        self._tell()

    async def read(self) -> AsyncGenerator[Piece, None]:
        """Everything from the beginning, also what is not there yet. Raises the failure it ended with."""
        reader, standing = object(), ""
        self._readers[reader] = 0
        try:
            while True:
                frames = self._take(reader)
                if frames:
                    standing = ""
                    yield Piece(frames)
                elif self._is_ended:
                    break
                elif self._standing and self._standing != standing:
                    standing = self._standing
                    yield Piece(standing=standing)
                else:
                    await self._news.wait()
            if self._failure is not None:
                raise self._failure
        finally:
            del self._readers[reader]
            if self.is_spent:
                self._let_go()
            self._tell()

    def _take(self, reader: object) -> bytes:
        """What this reader has not got, up to a bound."""
        at, joined = self._readers[reader] - self._first, bytearray()
        while at < len(self._frames) and len(joined) < JOINED_BYTES_MAX:
            joined += self._frames[at]
            at += 1
        self._readers[reader] = at + self._first
        if joined and self.is_spent:
            self._tell()
        return bytes(joined)

    def _let_go(self) -> int:
        """Drop what every reader has. Returns how many bytes are held still."""
        unread = self._first + (len(self._frames) if self._is_ended else 0)  # what is needed where nobody reads
        needed = min(self._readers.values(), default=unread)
        while self._first < needed:
            self._held_bytes -= len(self._frames.popleft())
            self._first += 1
        return self._held_bytes

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
