"""An OpenAI endpoint under load: asks for replies, notes when their parts come. Knows nothing of how many are asked."""

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any

import aiohttp
from swarm_core.errors import BadRequest, SwarmError

from swarm_cli.bench.sample import CUT, Sample
from swarm_cli.failures import LeaderUnreachable

LINE_BYTES_MAX = 2**20
CONNECT_TIMEOUT_S = 10.0
WORDS_MAX = 300  # of an error, shown to people


class Endpoint:
    """One server. Used as a context; `streams` connections at most."""

    def __init__(self, url: str, api_key: str, streams: int, timeout_s: float) -> None:
        """url: with or without /v1 at its end. timeout_s: how long one reply may take."""
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._streams = streams
        self._timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=CONNECT_TIMEOUT_S)

    async def __aenter__(self) -> "Endpoint":
        self._session = aiohttp.ClientSession(
            headers=self._headers,
            timeout=self._timeout,
            connector=aiohttp.TCPConnector(limit=self._streams),
            read_bufsize=LINE_BYTES_MAX,
        )
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self._session.close()

    async def models(self) -> list[dict[str, Any]]:
        """What it serves. Raises LeaderUnreachable when nothing answers, SwarmError when it is no OpenAI endpoint."""
        try:
            async with self._session.get(f"{self.url}/v1/models") as response:
                document = await response.json(content_type=None)
                if response.status != 200:
                    code, words = _failure_of(response.status, json.dumps(document))
                    raise SwarmError(f"{self.url}/v1/models answers {code}: {words}")
                return list(document["data"])
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError):
            raise BadRequest(f"{self.url} is no http or https address", field="--url") from None
        except aiohttp.ClientError as error:
            raise LeaderUnreachable(
                f"nothing answers at {self.url} ({error}); set --url or SWARM_GATEWAY_URL"
            ) from None
        except (ValueError, KeyError, TypeError):
            raise SwarmError(f"{self.url}/v1/models does not answer like an OpenAI endpoint") from None

    async def ask(self, model: str, prompt: str, new_tokens: int) -> Sample:
        """One streamed reply of exactly this many tokens. Never raises but for a cancel, which leaves a CUT sample.

        A cancel is answered once: the sample is returned, and the caller sees that it was cut.
        """
        sample = Sample(time.monotonic())
        try:
            await self._follow(sample, _body(model, prompt, new_tokens))
        except asyncio.CancelledError:
            sample.failure = CUT
        except TimeoutError:
            sample.failure, sample.words = "timeout", f"no end within {self._timeout.total:g} s"
        except aiohttp.ClientError as error:
            sample.failure, sample.words = "connection", str(error) or type(error).__name__
        sample.ended_s = time.monotonic()
        return sample

    async def _follow(self, sample: Sample, body: Mapping[str, Any]) -> None:
        async with self._session.post(f"{self.url}/v1/chat/completions", json=body) as response:
            if response.status != 200:
                sample.failure, sample.words = _failure_of(response.status, await response.text())
                return
            is_over = False
            async for line in response.content:
                came_s = time.monotonic()
                if line.startswith(b"data:"):
                    is_over = is_over or _take(sample, came_s, line[5:].strip())
            if not is_over and not sample.failure:
                sample.failure, sample.words = "broke_off", "the stream ended before its [DONE]"


def _body(model: str, prompt: str, new_tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": new_tokens,
        "min_tokens": new_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def _take(sample: Sample, came_s: float, data: bytes) -> bool:
    """Note one event; True for the last."""
    if data == b"[DONE]":
        return True
    try:
        event = json.loads(data)
        if error := event.get("error"):
            sample.failure, sample.words = _name_of(error, "error")
            return False
        if any(choice["delta"].get("content") for choice in event["choices"]):
            sample.text_s.append(came_s)
        if usage := event.get("usage"):
            sample.prompt_tokens, sample.completion_tokens = usage["prompt_tokens"], usage["completion_tokens"]
        if timing := (event.get("swarm") or {}).get("timing"):
            sample.timing = timing
    except (ValueError, KeyError, TypeError, AttributeError):
        sample.failure, sample.words = "bad_event", f"not an event of a chat completion: {data[:80]!r}"
    return False


def _failure_of(status: int, text: str) -> tuple[str, str]:
    """The word and the words of a reply that is no 200."""
    try:
        return _name_of(json.loads(text)["error"], f"http_{status}")
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"http_{status}", text[:WORDS_MAX]


def _name_of(error: Mapping[str, Any], otherwise: str) -> tuple[str, str]:
    return str(error.get("code") or otherwise), str(error.get("message", ""))[:WORDS_MAX]
