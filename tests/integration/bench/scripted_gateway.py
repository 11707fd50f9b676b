"""An OpenAI endpoint that answers by script, as SilentSwarm's gateway would; for `swarm bench`."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

TIMING = {"queue_ms": 1.5, "prefill_ms": 20.0, "stage0_ms": 2.5, "stage1_ms": 3.5, "link_ms": 0.5, "route": "direct"}


class ScriptedGateway:
    """What it was asked is in `asked`; `most` is how many it answered at once. Switches say how it answers."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.tokens_given: list[str | None] = []
        self.now = self.most = 0
        self.gap_s = 0.002
        self.models = [{"id": "tiny", "swarm": {"state": "ready"}}, {"id": "other", "swarm": {"state": "idle"}}]
        self.refuse_every = 0  # every n-th chat is refused
        self.break_every = 0  # every n-th chat ends with an error event
        self.template_tokens = 12
        self.begun = asyncio.Event()

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application()
        app.router.add_get("/v1/models", self._list)
        app.router.add_post("/v1/chat/completions", self._chat)
        return app

    @property
    def measured(self) -> list[dict[str, Any]]:
        """Chats but for those that find out how long a prompt is."""
        return [body for body in self.asked if body["max_tokens"] > 1]

    async def _list(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": self.models})

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.asked.append(body)
        self.tokens_given.append(request.headers.get("Authorization"))
        turn = len(self.measured)
        if body["max_tokens"] > 1 and self.refuse_every and turn % self.refuse_every == 0:
            error = {"message": "8 requests wait already", "type": "rate_limit_error", "code": "overloaded"}
            return web.json_response({"error": error}, status=429)
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            return await self._stream(request, body, turn)
        finally:
            self.now -= 1

    async def _stream(self, request: web.Request, body: dict[str, Any], turn: int) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(b": keep-alive\n\n" + _event({"role": "assistant", "content": ""}))
        for index in range(body["min_tokens"]):
            await asyncio.sleep(self.gap_s)
            await response.write(_event({"content": f"{index} "}))
            self.begun.set()
            if body["max_tokens"] > 1 and self.break_every and turn % self.break_every == 0:
                error = {"message": "stage 1 is gone", "type": "server_error", "code": "stage_failed"}
                await response.write(b"data: " + json.dumps({"error": error}).encode() + b"\n\n")
                await response.write_eof()
                return response
        prompt_tokens = len(body["messages"][0]["content"].split()) + self.template_tokens
        usage = {"prompt_tokens": prompt_tokens, "completion_tokens": body["min_tokens"]}
        last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}], "swarm": {"timing": TIMING}}
        for document in (last, {"choices": [], "usage": usage}):
            await response.write(b"data: " + json.dumps(document).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response


def _event(delta: dict[str, str]) -> bytes:
    chunk = {"choices": [{"index": 0, "delta": delta, "finish_reason": None}], "usage": None}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


@asynccontextmanager
async def serve(gateway: ScriptedGateway) -> AsyncIterator[str]:
    """Serve on a free port; gives the URL."""
    runner = web.AppRunner(gateway.app(), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()
