"""Rows of running replies while prompts arrive: their longest gap, and the share of a caller who asks for little."""

import asyncio
import statistics
from collections.abc import Sequence
from itertools import pairwise

from tests.bench.figures import NO_TARGET, Pair, Row, Target, quantile
from tests.bench.ring import BenchRing, RingPlan, Sleep, start_ring
from tests.bench.settings import Settings
from tests.bench.smollm import two_stages
from tests.bench.streams import Reply, ask, ask_many, prompt_of

STREAMS = 8
ARRIVING_TOKENS = (64, 128, 256, 512)
LONG_PROMPT_TOKENS = 2000
TOKENS_BEFORE = 40  # of the running reply, before the long prompt comes
# About what SmolLM2 takes on one core of 2.2 GHz: 8 rows in 75 ms, 260 prompt tokens a second, half of it per stage.
LIKE_SMOLLM = Sleep(base_ms=28, row_ms=1.2, token_ms=1.9)


async def gaps(settings: Settings) -> list[Row]:
    """Eight replies run while prompts keep arriving."""
    rows = []
    plans = {"2 stages of SmolLM2": two_stages(settings), "2 sleeping stages": RingPlan(2, LIKE_SMOLLM)}
    for name, plan in plans.items():
        target = Target(5.0, 3.0, is_least=False) if plan.servable else NO_TARGET
        async with start_ring(plan) as ring:
            await ring.wire()
            await ask_many(ring, 2, 64, 8)
            pairs, arrivals, p99 = [], 0, []
            for _ in range(settings.pairs):
                replies, arrived = await _run_with_arrivals(ring)
                waits = _gaps_beside(replies, arrived)
                pairs.append(Pair.ratio(max(waits) * 1e3, statistics.median(waits) * 1e3))
                p99.append(quantile(waits, 0.99) / statistics.median(waits))
                arrivals += len(arrived)
        what = f"8 running replies while prompts of 64 to 512 tokens arrive: longest gap / median gap ({name})"
        note = (
            f"{arrivals} prompts arrived in all, each as soon as the one before had its first token. "
            f"The gap at the 99th percentile was {statistics.median(p99):.1f} x the median."
        )
        rows.append(Row(what, target, tuple(pairs), "longest gap, ms", "median gap, ms, of the same replies", (note,)))
    return rows


async def _run_with_arrivals(ring: BenchRing) -> tuple[list[Reply], list[Reply]]:
    """Eight replies of one caller, and the prompts of others that came meanwhile."""
    running = [
        asyncio.ensure_future(ask(ring, prompt_of(64, stream), 96, f"s{stream}", "talks")) for stream in range(STREAMS)
    ]
    arrived: list[Reply] = []
    try:
        while not any(reply.done() for reply in running):
            turn = len(arrived)
            length = ARRIVING_TOKENS[turn % len(ARRIVING_TOKENS)]
            arrived.append(await ask(ring, prompt_of(length, 100 + turn), 1, f"a{turn}", f"asks {turn}"))
        return list(await asyncio.gather(*running)), arrived
    finally:
        for reply in running:
            reply.cancel()


def _gaps_beside(replies: Sequence[Reply], arrived: Sequence[Reply]) -> list[float]:
    """Gaps of the running replies from when all decode to when the first ends, in seconds."""
    assert arrived
    start_s, stop_s = max(reply.token_s[0] for reply in replies), min(reply.token_s[-1] for reply in replies)
    return [
        after - before
        for reply in replies
        for before, after in pairwise(reply.token_s)
        if before >= start_s and after <= stop_s
    ]


async def fairness(settings: Settings) -> list[Row]:
    """A prompt of 2,000 tokens from one caller while another's reply runs."""
    rows = []
    plans = {"2 stages of SmolLM2": two_stages(settings), "2 sleeping stages": RingPlan(2, LIKE_SMOLLM)}
    for name, plan in plans.items():
        target = Target(2.0, 1.5, is_least=False) if plan.servable else NO_TARGET
        async with start_ring(plan) as ring:
            await ring.wire()
            await ask(ring, prompt_of(64), 8)
            pairs = [await _fair_pair(ring) for _ in range(settings.pairs)]
        what = f"a running reply while another caller's prompt of 2,000 tokens is computed: median gap ({name})"
        a, b = "median gap while it is computed, ms", "median gap before, ms"
        rows.append(Row(what, target, tuple(pairs), a, b))
    return rows


async def _fair_pair(ring: BenchRing) -> Pair:
    """The median gap of one reply during the long prompt, and before."""
    reply = Reply()
    running = asyncio.ensure_future(ask(ring, prompt_of(64), 1500, "short", "one", reply))
    try:
        while len(reply.token_s) < TOKENS_BEFORE:
            await asyncio.sleep(0.05)
        long = await ask(ring, prompt_of(LONG_PROMPT_TOKENS), 1, "long", "other")
    finally:
        running.cancel()
        await asyncio.wait({running})
    start_s, stop_s = long.sent_s, long.token_s[0]
    pairs = list(pairwise(reply.token_s))
    during = [after - before for before, after in pairs if before >= start_s and after <= stop_s]
    before = [after - before for before, after in pairs if after < start_s]
    # A reply that got no token at all in that time waited the whole of it.
    return Pair.ratio(statistics.median(during or [stop_s - start_s]) * 1e3, statistics.median(before) * 1e3)
