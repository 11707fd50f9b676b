"""Server-sent events: framing, comments in silence, and readers that do not read. Knows no event's meaning.

One task per stream, not per event, looks after silence and after readers that stand still; so an event costs one write.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Iterator
from typing import Any

from aiohttp import web

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
KEEP_ALIVE = "keep-alive"
# Line ends to some readers' eyes, though not to the standard's: U+0085, U+2028 and U+2029, escaped as JSON.
_LINE_ENDS = str.maketrans({0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"})


class ReaderGone(Exception):
    """The client closed its connection or stopped reading; nothing more can be said to it."""


class EventStream:
    """One reply of events. `open` commits to status 200; until then a failure can still be a plain reply.

    keep_alive_s: silence after which a comment is sent, which also opens the stream. write_timeout_s: how long a
    reader may take nothing; noticed before twice that has passed, and then its connection is closed.
    """

    def __init__(self, request: web.Request, keep_alive_s: float, write_timeout_s: float) -> None:
        self._request = request
        self._keep_alive_s = keep_alive_s
        self._write_timeout_s = write_timeout_s
        self._loop = asyncio.get_running_loop()
        self._wrote_s = self._loop.time()
        self._writing_since_s: float | None = None
        self._standing = KEEP_ALIVE
        self.response = web.StreamResponse(headers=_HEADERS)

    @property
    def is_open(self) -> bool:
        """The headers are sent; from now on a failure is an event."""
        return self.response.prepared

    async def open(self) -> None:
        """Send the headers, once; comments say "keep-alive" again. Raises ReaderGone."""
        self._standing = KEEP_ALIVE
        await self._open()

    async def send(self, json_text: str, event: str = "") -> None:
        """One event. json_text: one line of JSON. Raises ReaderGone."""
        await self.send_framed(framed(json_text, event))

    async def send_framed(self, events: bytes) -> None:
        """Events with their frames on. Raises ReaderGone."""
        await self._written(self.response.write(events))

    async def stand(self, standing: str) -> None:
        """What comments say while nothing happens; said at once when it is news to an open stream. Raises ReaderGone.

        standing: for people; its line ends become spaces.
        """
        standing = " ".join(standing.split())
        is_news, self._standing = standing != self._standing, standing
        if is_news and self.is_open:
            await self._comment()

    async def close(self) -> None:
        """End the reply. Raises ReaderGone."""
        await self._written(self.response.write_eof())

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """While inside, silence is filled, and a reader that stands still is dropped, which cancels its handler."""
        watch = asyncio.create_task(self._watch())
        try:
            yield
        finally:
            watch.cancel()

    async def _watch(self) -> None:
        with contextlib.suppress(ReaderGone):  # the handler hears of it by itself
            while True:
                wait_s = self._due_s() - self._loop.time()
                if wait_s <= 0:
                    await self._act()
                else:
                    # A write that begins meanwhile must be looked at when it has lasted its own limit.
                    await asyncio.sleep(min(wait_s, self._write_timeout_s))

    def _due_s(self) -> float:
        """When there is something to do, on the loop's clock."""
        if self._writing_since_s is not None:
            return self._writing_since_s + self._write_timeout_s
        return self._wrote_s + self._keep_alive_s

    async def _act(self) -> None:
        """Fill the silence, or drop a reader that stands still. Raises ReaderGone."""
        if self._writing_since_s is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._write_timeout_s):
                    await self._open()
                    await self._comment()
                return
        self._drop()
        raise ReaderGone(f"nothing was read for {self._write_timeout_s:g} s")

    async def _open(self) -> None:
        if not self.is_open:
            await self._written(self.response.prepare(self._request))

    async def _comment(self) -> None:
        await self.send_framed(f": {self._standing}\n\n".encode())

    async def _written(self, write: Awaitable[Any]) -> None:
        self._writing_since_s = self._loop.time()
        try:
            await write
        except ConnectionError as error:
            self._drop()
            raise ReaderGone(str(error) or "the connection is closed") from None
        finally:
            self._writing_since_s = None
            self._wrote_s = self._loop.time()

    def _drop(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


def framed(json_text: str, event: str = "") -> bytes:
    """One event. json_text: one line of JSON."""
    name = f"event: {event}\n" if event else ""
    return f"{name}data: {escape_line_ends(json_text)}\n\n".encode()


def escape_line_ends(json_text: str) -> str:
    """JSON without any alphabet's line ends in its texts; it means the same."""
    return json_text if json_text.isascii() else json_text.translate(_LINE_ENDS)
