"""A model hub for tests: one repository at one commit, over HTTP, that misbehaves as a test says, once a fault."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

REPOSITORY, COMMIT = "org/tiny", "0123456789abcdef0123456789abcdef01234567"


class ScriptedHub:
    """Serves byte ranges of `files`. faults: how the next answers go wrong, one each; then all is well.

    "cut N": the connection breaks after N bytes. "flip": a byte in the middle is another. "swap": other bytes.
    "short": the answer ends early and says so. "whole": the range is ignored. "other": another range, and it says so.
    "stall": nothing after half. "gzip": claims to be packed. "to URL": redirects. A number: that status.
    folder: where the files lie, for some too large to hold; nothing goes wrong with those.
    """

    def __init__(self, files: dict[str, bytes], folder: Path | None = None) -> None:
        self.files = files
        self.folder = folder
        self.faults: list[str] = []
        self.always = ""
        self.sent_bytes = 0
        self.ranges: list[str] = []
        self.tokens: list[str] = []
        self.endpoint = ""
        self.go_on = asyncio.Event()
        self.app = web.Application()
        self.app.router.add_get(f"/{REPOSITORY}/resolve/{COMMIT}/{{file:.+}}", self._file)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization", ""))
        self.ranges.append(request.headers.get("Range", ""))
        if self.folder is not None:
            return web.FileResponse(self.folder / request.match_info["file"])
        whole = self.files.get(request.match_info["file"])
        fault, _, about = (self.faults.pop(0) if self.faults else self.always).partition(" ")
        if whole is None or fault.isdigit():
            return web.Response(status=int(fault or 404))
        if fault == "to":
            return web.Response(status=302, headers={"Location": about or str(request.url)})
        begin, end = (int(number) for number in self.ranges[-1].removeprefix("bytes=").split("-"))
        body = bytearray(whole[begin : end + 1])
        status, said = 206, f"bytes {begin}-{end}/{len(whole)}"
        headers = {}
        if fault == "whole":
            status, said, body = 200, "", bytearray(whole)
        elif fault == "other":
            said, body = f"bytes {begin + 8}-{end + 8}/{len(whole)}", bytearray(whole[begin + 8 : end + 9])
        elif fault == "flip":
            body[len(body) // 2] ^= 1
        elif fault == "swap":
            body.reverse()
        elif fault == "short":
            del body[len(body) // 2 :]
        elif fault == "gzip":
            headers["Content-Encoding"] = "gzip"
        return await self._send(request, status, said, bytes(body), fault, about, headers)

    async def _send(self, request, status, said, body, fault, about, headers) -> web.StreamResponse:
        response = web.StreamResponse(status=status, headers=headers)
        if said:
            response.headers["Content-Range"] = said
        response.content_length = len(body)
        await response.prepare(request)
        stop = {"cut": int(about or 0), "stall": len(body) // 2}.get(fault, len(body))
        await response.write(body[:stop])
        self.sent_bytes += stop
        if fault == "stall":
            await self.go_on.wait()
        if fault in ("cut", "stall"):
            request.transport.close()
        return response


@asynccontextmanager
async def serving(hub: ScriptedHub) -> AsyncIterator[ScriptedHub]:
    """The hub on a port of its own."""
    runner = web.AppRunner(hub.app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    hub.endpoint = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield hub
    finally:
        hub.go_on.set()
        await runner.cleanup()
