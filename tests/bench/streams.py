"""Replies that are asked for and timed, token by token, on the caller's clock. Starts no process."""

import asyncio
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from silentswarm.core.v1 import generation_pb2

from tests.bench.ring import BenchRing


@dataclass
class Reply:
    """One reply as it came. token_s: the time of every token; those of one event share theirs."""

    sent_s: float = 0.0
    token_s: list[float] = field(default_factory=list)
    timing: generation_pb2.Timing = field(default_factory=generation_pb2.Timing)

    @property
    def first_token_s(self) -> float:
        """Seconds from asking to the first token."""
        return self.token_s[0] - self.sent_s

    @property
    def gaps_s(self) -> list[float]:
        """Seconds between tokens."""
        return [after - before for before, after in pairwise(self.token_s)]


def prompt_of(length: int, seed: int = 0) -> list[int]:
    """Fixed token ids, others for every seed."""
    return [(7919 * (index + 3 + 131 * seed)) % 49_000 + 20 for index in range(length)]


def generation_of(prompt: Sequence[int], new_tokens: int, caller: str = "") -> generation_pb2.Generation:
    """Greedy, of exactly this many tokens."""
    return generation_pb2.Generation(
        prompt_ids=generation_pb2.TokenIds(ids=prompt),
        sampling=generation_pb2.Sampling(temperature=0),
        new_tokens_max=new_tokens,
        new_tokens_min=new_tokens,
        ignore_eos=True,
        caller=caller,
    )


async def ask(
    ring: BenchRing,
    prompt: Sequence[int],
    new_tokens: int,
    name: str = "r",
    caller: str = "",
    reply: Reply | None = None,
) -> Reply:
    """One reply; `reply` is filled as it comes, for who wants to look earlier. Raises AssertionError when it fails."""
    reply = reply or Reply()
    reply.sent_s = time.perf_counter()
    async for event in ring.generate(generation_of(prompt, new_tokens, caller), name):
        kind = event.WhichOneof("event")
        assert kind != "failed", event
        if kind == "tokens":
            now_s = time.perf_counter()
            reply.token_s.extend([now_s] * len(event.tokens.ids))
        elif kind == "done":
            reply.timing = event.done.timing
    assert len(reply.token_s) == new_tokens
    return reply


async def ask_many(ring: BenchRing, streams: int, prompt_tokens: int, new_tokens: int) -> list[Reply]:
    """Replies at once, every one to a prompt of its own, all of about one length."""
    asks = (
        ask(ring, prompt_of(prompt_tokens - stream % 8, stream), new_tokens, f"s{stream}") for stream in range(streams)
    )
    return list(await asyncio.gather(*asks))


def steady_window(replies: Sequence[Reply]) -> tuple[float, float]:
    """From when all decode to when the first ends, on the caller's clock."""
    return max(reply.token_s[0] for reply in replies), min(reply.token_s[-1] for reply in replies)


def steady_rate(replies: Sequence[Reply]) -> float:
    """Tokens per second of all together while all decode."""
    start_s, stop_s = steady_window(replies)
    assert stop_s > start_s, "the replies never ran all at once"
    return sum(1 for reply in replies for at_s in reply.token_s if start_s < at_s <= stop_s) / (stop_s - start_s)


def median_gap_s(replies: Sequence[Reply]) -> float:
    """The median time between two tokens of one reply."""
    return statistics.median(gap for reply in replies for gap in reply.gaps_s)
