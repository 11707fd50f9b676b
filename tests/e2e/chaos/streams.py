"""Streams through the real gateway, greedy or by a seed, each held against the same prompt alone and undisturbed."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import aiohttp

from tests.e2e.conftest import MODEL

STREAM_S = 240.0
TEMPERATURE = 0.8  # of streams with a seed
PROMPTS = (
    "Tell me a long story about a lighthouse and its keeper.",
    "Explain step by step how bread is baked.",
    "List the planets and say two sentences about each.",
    "Describe a walk through an old harbour in the rain.",
    "Write a letter to a friend about a new garden.",
    "Explain how a bicycle stays upright.",
    "Tell me what a librarian does from morning to evening.",
    "Describe the four seasons in a mountain village.",
)
# A prompt that takes two pieces, so that a fault meets it half computed.
LONG = " ".join(f"Note {number}: the {number}th box holds {number * 7 % 91} nails." for number in range(25))


@dataclass
class Stream:
    """One reply as its client saw it. seed: None is greedy. arrivals_s: of each piece of text, monotonic."""

    prompt: str
    model: str = MODEL
    seed: int | None = None
    text: str = ""
    arrivals_s: list[float] = field(default_factory=list)
    finish_reason: str = ""
    completion_tokens: int | None = None
    error: str = ""
    is_over: bool = False
    over_s: float | None = None  # on the monotonic clock

    def longest_gap_s(self, after_s: float) -> float:
        """The longest silence that ended after a moment; 0 when nothing came after it."""
        pairs = zip(self.arrivals_s, self.arrivals_s[1:], strict=False)
        return max((later - max(earlier, after_s) for earlier, later in pairs if later > after_s), default=0.0)


def body_of(stream: Stream, tokens: int) -> dict:
    """Of exactly so many tokens."""
    drawn = {"temperature": 0} if stream.seed is None else {"temperature": TEMPERATURE, "seed": stream.seed}
    return {
        "model": stream.model,
        "messages": [{"role": "user", "content": stream.prompt}],
        **drawn,
        "max_tokens": tokens,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def listen(session: aiohttp.ClientSession, stream: Stream, tokens: int) -> Stream:
    """Read one reply to its end, its error, or its broken connection."""
    try:
        async with asyncio.timeout(STREAM_S):
            async with session.post("/v1/chat/completions", json=body_of(stream, tokens)) as response:
                if response.status != 200:
                    stream.error = f"HTTP {response.status}: {(await response.text())[:300]}"
                    return stream
                await _read(response, stream)
    except (aiohttp.ClientError, TimeoutError) as error:
        stream.error = f"{type(error).__name__}: {error}"
    finally:
        stream.is_over, stream.over_s = True, time.monotonic()
    return stream


async def _read(response: aiohttp.ClientResponse, stream: Stream) -> None:
    ended = False
    async for line in response.content:
        if not line.startswith(b"data: "):
            continue
        payload = line.decode().strip().removeprefix("data: ")
        if payload == "[DONE]":
            ended = True
            continue
        event = json.loads(payload)
        if "error" in event:
            stream.error = str(event["error"].get("message", event["error"]))
            return
        for choice in event["choices"]:
            if piece := choice["delta"].get("content"):
                stream.text += piece
                stream.arrivals_s.append(time.monotonic())
            stream.finish_reason = choice["finish_reason"] or stream.finish_reason
        if usage := event.get("usage"):
            stream.completion_tokens = usage["completion_tokens"]
    if not ended:
        stream.error = stream.error or "the stream ended without [DONE]"


async def talk_all(url: str, streams: Sequence[Stream], tokens: int) -> None:
    """All at once."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=STREAM_S, sock_connect=10)
    async with aiohttp.ClientSession(url, connector=connector, timeout=timeout) as session:
        await asyncio.gather(*(listen(session, stream, tokens) for stream in streams))


async def talk_alone(url: str, prompts: Sequence[str], tokens: int) -> dict[str, str]:
    """Each prompt's text, one after the other. Raises AssertionError when one fails."""
    texts = {}
    for prompt in dict.fromkeys(prompts):
        stream = Stream(prompt)
        await talk_all(url, [stream], tokens)
        assert not stream.error, stream.error
        texts[prompt] = stream.text
    return texts
