"""Rows of the gateway: what it adds to the first token, and how evenly it passes on many streams.

A real leader and a real gateway, each a process of its own, and a fake fellow that makes tokens up at an exact pace
and writes into each when it left. Nothing is pinned.
"""

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import aiohttp
from silentswarm.core.v1 import generation_pb2
from silentswarm.leader.v1 import inference_pb2, inference_pb2_grpc, serving_pb2, serving_pb2_grpc
from swarm_rpc.channel import dial

from tests.bench.figures import Pair, Row, Target, Unit, quantile
from tests.bench.ring import end
from tests.bench.settings import Settings
from tests.e2e.swarm import free_port
from tests.integration.leader.rig import MODEL, write_servable
from tests.unit.leader.model_facts import make_manifest

STREAMS = 64
TOKENS_PER_S = 2000
INTERVAL_MS = STREAMS / TOKENS_PER_S * 1e3
STREAM_TOKENS = 300  # about 10 s
FIRST_TOKENS = 60  # requests, one after the other, of each side of a pair
START_S = 60.0


@dataclass
class Front:
    """A swarm whose fellow makes its tokens up."""

    leader: str
    http: str
    session: aiohttp.ClientSession
    inference: inference_pb2_grpc.InferenceStub


@dataclass
class Stream:
    """One streamed reply: when each token came, and when it had left the fellow; seconds, monotonic."""

    sent_s: float
    came_s: list[float] = field(default_factory=list)
    left_s: list[float] = field(default_factory=list)


async def gateway(settings: Settings) -> list[Row]:
    """First tokens one by one, then many streams."""
    async with start_front() as front:
        await _first_token_ms(front, over_http=True, requests=10)
        await _first_token_ms(front, over_http=False, requests=10)
        firsts, gaps, transits, busy_firsts = [], [], [], []
        for _ in range(settings.pairs):
            a = await _first_token_ms(front, over_http=True)
            b = await _first_token_ms(front, over_http=False)
            firsts.append(Pair(a, b, a - b))
        for _ in range(settings.pairs):
            started_s = time.monotonic()
            streams = await asyncio.gather(*(_stream(front, STREAM_TOKENS) for _ in range(STREAMS)))
            rate = STREAMS * STREAM_TOKENS / (time.monotonic() - started_s)
            gaps.append(_gap_pair(streams))
            transits.append(_transit_pair(streams))
            first_ms = [(stream.came_s[0] - stream.sent_s) * 1e3 for stream in streams]
            busy_firsts.append(Pair(statistics.median(first_ms), rate, statistics.median(first_ms)))
    ms = Target(None, None, Unit.MS)
    what = f"gateway: p99 gap between events, {STREAMS} streams at {TOKENS_PER_S} tokens/s in all"
    note = f"A token leaves every {INTERVAL_MS:g} ms in each stream, which is the least the gap can be."
    return [
        Row(
            "gateway: added time to first token",
            Target(5.0, 2.0, Unit.MS, is_least=False),
            tuple(firsts),
            f"median ms of {FIRST_TOKENS} requests through gateway and leader",
            "median ms, from the leader directly",
        ),
        Row(
            what,
            Target(100.0, 50.0, Unit.MS, is_least=False),
            tuple(gaps),
            "p99 ms at the clients",
            "p99 ms where they left",
            (note,),
        ),
        Row("the same: from leaving the fellow to the client, p99", ms, tuple(transits), "p99 ms", "median ms", ()),
        Row("the same: time to first token, all asked at once", ms, tuple(busy_firsts), "median ms", "tokens/s", ()),
    ]


@asynccontextmanager
async def start_front() -> AsyncIterator[Front]:
    """Leader, gateway and fake fellow, the model loaded; ended with the block."""
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        write_servable(scratch / "models", make_manifest())
        leader, http_port = f"127.0.0.1:{free_port()}", free_port()
        await _start(stack, ["swarm_leader"], _leader_env(scratch, leader.rsplit(":", 1)[1]))
        channel = await stack.enter_async_context(dial(leader))
        async with asyncio.timeout(START_S):
            await channel.channel_ready()
        fellow = ["tests.bench.fake_fellow", "--leader", leader, "--interval-ms", str(INTERVAL_MS)]
        joined = await _start(stack, fellow, {}, stdout=asyncio.subprocess.PIPE)
        assert joined.stdout
        async with asyncio.timeout(START_S):
            assert await joined.stdout.readline() == b"joined\n"
        await _load(serving_pb2_grpc.ServingStub(channel))
        await _start(stack, ["swarm_gateway"], {"SWARM_LEADER": leader, "SWARM_HTTP_PORT": str(http_port)})
        connector = aiohttp.TCPConnector(limit=0)
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        front = Front(leader, f"http://127.0.0.1:{http_port}", session, inference_pb2_grpc.InferenceStub(channel))
        await _until_it_answers(front)
        yield front


def _leader_env(scratch: Path, port: str) -> dict[str, str]:
    return {
        "SWARM_DATA_DIR": str(scratch / "leader"),
        "SWARM_SERVABLE_MODELS_ROOT": str(scratch / "models"),
        "SWARM_GRPC_PORT": port,
        "SWARM_MIN_FREE_DISK_GB": "0",
        "SWARM_SERVE_IN_FLIGHT": "100",
        "SWARM_SERVE_CONTEXT_TOKENS": "2048",
    }


async def _start(
    stack: AsyncExitStack, arguments: list[str], env: dict[str, str], stdout: int | None = None
) -> asyncio.subprocess.Process:
    own = {name: value for name, value in os.environ.items() if not name.startswith("SWARM_")}
    quiet = {"SWARM_LOG_LEVEL": "ERROR", **env}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *arguments, env={**own, **quiet}, stdout=stdout
    )
    stack.push_async_callback(end, process)
    return process


async def _load(serving: serving_pb2_grpc.ServingStub) -> None:
    await serving.LoadModel(serving_pb2.LoadModelRequest(model_id=MODEL), timeout=START_S)
    async for status in serving.WatchModel(serving_pb2.WatchModelRequest(model_id=MODEL), timeout=START_S):
        if status.state == serving_pb2.PLACEMENT_STATE_READY:
            return
    raise AssertionError(f"the model did not load: {status.reason}")


async def _until_it_answers(front: Front) -> None:
    async with asyncio.timeout(START_S):
        while True:
            try:
                async with front.session.get(f"{front.http}/v1/models"):
                    return
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


async def _first_token_ms(front: Front, *, over_http: bool, requests: int = FIRST_TOKENS) -> float:
    """The median time to the first token of short replies, one after the other."""
    taken = []
    for _ in range(requests):
        stream = await (_stream(front, 1) if over_http else _call(front, 1))
        taken.append((stream.came_s[0] - stream.sent_s) * 1e3)
    return statistics.median(taken)


async def _stream(front: Front, tokens: int) -> Stream:
    """One reply through the gateway. Raises AssertionError unless every token comes."""
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "Go."}],
        "max_tokens": tokens,
        "stream": True,
    }
    stream = Stream(time.monotonic())
    async with front.session.post(f"{front.http}/v1/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        lines: list[tuple[float, bytes]] = []
        async for line in response.content:
            lines.append((time.monotonic(), line))
    for came_s, line in lines:  # parsed when the stream is over, so that reading is all that is timed
        if line.startswith(b"data: {"):
            choices = json.loads(line[6:])["choices"]
            if choices and (text := choices[0]["delta"].get("content")):
                _note(stream, came_s, text)
    assert len(stream.came_s) == tokens, f"{len(stream.came_s)} tokens came, of {tokens}"
    return stream


async def _call(front: Front, tokens: int) -> Stream:
    """One reply from the leader."""
    chat = generation_pb2.Chat(messages=[generation_pb2.ChatMessage(role="user", content="Go.")])
    generation = generation_pb2.Generation(chat=chat, new_tokens_max=tokens)
    stream = Stream(time.monotonic())
    async for answer in front.inference.Generate(
        inference_pb2.GenerateRequest(model_id=MODEL, generation=generation), timeout=60
    ):
        if answer.event.WhichOneof("event") == "tokens":
            _note(stream, time.monotonic(), answer.event.tokens.text)
    return stream


def _note(stream: Stream, came_s: float, text: str) -> None:
    """The tokens of one event; several of them came at once."""
    for left_ns in text.split():
        stream.came_s.append(came_s)
        stream.left_s.append(int(left_ns) / 1e9)


def _gap_pair(streams: list[Stream]) -> Pair:
    """Gaps from the time all run to the time the first ends: at the clients, and where they left."""
    start_s, stop_s = max(stream.came_s[0] for stream in streams), min(stream.came_s[-1] for stream in streams)
    came, left = [], []
    for stream in streams:
        for (came_a, came_b), (left_a, left_b) in zip(pairwise(stream.came_s), pairwise(stream.left_s), strict=True):
            if came_a >= start_s and came_b <= stop_s:
                came.append((came_b - came_a) * 1e3)
                left.append((left_b - left_a) * 1e3)
    return Pair(quantile(came, 0.99), quantile(left, 0.99), quantile(came, 0.99))


def _transit_pair(streams: list[Stream]) -> Pair:
    """Time between the fellow and the client, p99 and median."""
    ways = [
        (came - left) * 1e3
        for stream in streams
        for came, left in zip(stream.came_s[1:], stream.left_s[1:], strict=True)
    ]
    return Pair(quantile(ways, 0.99), statistics.median(ways), quantile(ways, 0.99))
