"""HTTP as bytes, for what no client library would send."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

WAIT_S = 10.0


@dataclass(frozen=True)
class RawReply:
    """What came back. headers: names in lower case. is_closed: the server ended the connection."""

    status: int
    headers: dict[str, str]
    body: bytes
    is_closed: bool = True

    @property
    def document(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


async def connect(gateway: Any) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A plain socket to a gateway."""
    host, port = gateway.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port), limit=2**22)


async def read_reply(reader: asyncio.StreamReader, has_body: bool = True) -> RawReply:
    """One reply with a Content-Length, informational ones skipped."""
    async with asyncio.timeout(WAIT_S):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            lines = head.split("\r\n")
            status = int(lines[0].split(" ")[1])
            if status != 100:
                break
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0))) if has_body else b""
    return RawReply(status, headers, body, is_closed=False)


async def send_raw(gateway: Any, request: bytes, has_body: bool = True) -> RawReply:
    """Send these bytes, read one reply, and see whether the connection ends."""
    reader, writer = await connect(gateway)
    try:
        writer.write(request)
        reply = await read_reply(reader, has_body)
        try:
            rest = await asyncio.wait_for(reader.read(1), 0.3)
        except TimeoutError:
            return reply
        except ConnectionError:
            rest = b""
        assert rest == b""
        return RawReply(reply.status, reply.headers, reply.body)
    finally:
        writer.close()
