"""Server-sent events: framing, keep-alive comments, and readers that do not read. Knows no event's meaning."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from aiohttp import web

T = TypeVar("T")
_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}
# Line ends to some readers' eyes, though not to the standard's: U+0085, U+2028 and U+2029, escaped as JSON.
_LINE_ENDS = str.maketrans({0x85: "\\u0085", 0x2028: "\\u2028", 0x2029: "\\u2029"})


class ReaderGone(Exception):
    """The client closed its connection or stopped reading; nothing more can be said to it."""


class EventStream:
    """One reply of events. `open` commits to status 200; until then a failure can still be a plain reply."""

    def __init__(self, request: web.Request, keep_alive_s: float, write_timeout_s: float) -> None:
        self._request = request
        self._keep_alive_s = keep_alive_s
        self._write_timeout_s = write_timeout_s
        self.response = web.StreamResponse(headers=_HEADERS)

    async def open(self) -> None:
        """Send the headers."""
        await self._bounded(lambda: self.response.prepare(self._request))

    async def send(self, json_text: str, event: str = "") -> None:
        """One event. json_text: one line of JSON. Raises ReaderGone."""
        name = f"event: {event}\n" if event else ""
        await self._write(f"{name}data: {json_text.translate(_LINE_ENDS)}\n\n")

    async def wait(self, read: Callable[[], Awaitable[T]]) -> T:
        """The next message, with a comment sent whenever none came for keep_alive_s. Raises ReaderGone."""
        pending = asyncio.ensure_future(read())
        try:
            while not (await asyncio.wait({pending}, timeout=self._keep_alive_s))[0]:
                await self._write(": keep-alive\n\n")
            return pending.result()
        finally:
            pending.cancel()

    async def close(self) -> None:
        """End the reply. Raises ReaderGone."""
        await self._bounded(self.response.write_eof)

    async def _write(self, text: str) -> None:
        await self._bounded(lambda: self.response.write(text.encode()))

    async def _bounded(self, write: Callable[[], Awaitable[Any]]) -> None:
        try:
            async with asyncio.timeout(self._write_timeout_s):
                await write()
        except (TimeoutError, ConnectionError) as error:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ReaderGone(str(error) or f"nothing was read for {self._write_timeout_s:g} s") from None
