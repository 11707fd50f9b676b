"""Rows that sleeping stages measure: schedule, links and relay, apart from all arithmetic."""

import asyncio
import statistics
import time
from collections.abc import Sequence

from tests.bench.figures import NO_TARGET, Pair, Row, Target, Unit
from tests.bench.ring import BenchRing, RingPlan, Sleep, start_relay, start_ring
from tests.bench.settings import Settings
from tests.bench.streams import Reply, ask, ask_many, median_gap_s, prompt_of, steady_rate
from tests.delaying_proxy import ProxyProcess, measure_round_trip_s, start_proxy

ROUND_TRIP_S = 0.020
ONE_WAY_S = ROUND_TRIP_S / 2
PROMPT_TOKENS = 20


def compute_ms(reply: Reply) -> float:
    """What all stages together computed per token, by their own clocks."""
    return sum(reply.timing.stage_ms)


async def hop(settings: Settings) -> list[Row]:
    """What a link costs a token beyond the compute, both on loopback."""
    target = Target(2.0, 1.0, Unit.MS, is_least=False)
    async with start_ring(RingPlan(2, Sleep(base_ms=5))) as ring:
        await ring.wire()
        await ask(ring, prompt_of(PROMPT_TOKENS), 32)
        pairs = []
        for _ in range(settings.pairs):
            reply = await ask(ring, prompt_of(PROMPT_TOKENS), 200)
            gap_ms = median_gap_s([reply]) * 1e3
            pairs.append(Pair(gap_ms, compute_ms(reply), (gap_ms - compute_ms(reply)) / 2))
    what = "cost of a hop beyond compute, loopback, per token (2 sleeping stages)"
    a, b = "median ms between tokens", "ms of compute per token, both stages (5 ms each)"
    return [Row(what, target, tuple(pairs), a, b, ("A token takes two hops; the figure is (A - B) / 2.",))]


async def lap(settings: Settings) -> list[Row]:
    """A token over a distance costs its compute and one lap."""
    target = Target(1.10, 1.05, is_least=False)
    async with start_proxy() as proxy, start_ring(RingPlan(2, Sleep(base_ms=5))) as ring:
        await ring.wire_delayed(proxy, ONE_WAY_S)
        await ask(ring, prompt_of(PROMPT_TOKENS), 16)
        pairs = []
        for _ in range(settings.pairs):
            reply = await ask(ring, prompt_of(PROMPT_TOKENS), 100)
            lap_ms = statistics.median(await measure_round_trip_s(proxy, ONE_WAY_S)) * 1e3
            pairs.append(Pair.ratio(median_gap_s([reply]) * 1e3, compute_ms(reply) + lap_ms))
        late = await proxy.lateness()
    what = "ring of 2 sleeping stages, 20 ms round trip: token time against compute + one lap"
    note = f"The proxy let its chunks go {late['p50_ms']:.2f} ms late (median), {late['p99_ms']:.2f} ms (p99)."
    return [Row(what, target, tuple(pairs), "median ms between tokens", "ms of compute + measured lap", (note,))]


async def eight(settings: Settings) -> list[Row]:
    """Eight streams fill what one leaves idle, where batching alone would not."""
    plan = RingPlan(4, Sleep(row_ms=20))
    async with start_proxy() as proxy, start_ring(plan) as ring:
        await ring.wire_delayed(proxy, ONE_WAY_S)
        await ask_many(ring, 8, PROMPT_TOKENS, 8)
        pairs = []
        for _ in range(settings.pairs):
            many = steady_rate(await ask_many(ring, 8, PROMPT_TOKENS, 40))
            pairs.append(Pair.ratio(many, steady_rate([await ask(ring, prompt_of(PROMPT_TOKENS), 24)])))
    what = "4 sleeping stages, 8 streams, 20 ms round trip: total against one stream"
    note = (
        "A row costs 20 ms on each stage, however many are batched, so batching gains nothing. One stream takes "
        "4 x 20 + 40 ms a token, a stage that is always busy gives one every 20 ms: the ideal is 6 x."
    )
    return [Row(what, Target(3.0, 4.0), tuple(pairs), "tokens/s of 8 streams", "tokens/s of one", (note,))]


async def overlap(settings: Settings) -> list[Row]:
    """A prompt in pieces keeps both stages busy."""
    sleep, tokens, pieces, stages = Sleep(token_ms=0.4), 1500, 6, 2
    ideal = stages * pieces / (pieces + stages - 1)
    whole_plan = RingPlan(stages, sleep, piece_tokens=0)
    cut_plan = RingPlan(stages, sleep, piece_tokens=tokens // pieces)
    async with start_ring(whole_plan) as whole, start_ring(cut_plan) as cut:
        await whole.wire()
        await cut.wire()
        pairs = []
        for turn in range(settings.pairs + 1):
            a = (await ask(cut, prompt_of(tokens, turn), 1)).first_token_s
            b = (await ask(whole, prompt_of(tokens, turn), 1)).first_token_s
            pairs.append(Pair(a * 1e3, b * 1e3, b / a / ideal))
    what = "prompt of 1,500 tokens over 2 sleeping stages: against the ideal overlap S*m/(m+S-1)"
    note = f"0.4 ms a token on each stage, {pieces} pieces of {tokens // pieces}: the ideal is {ideal:.3f} x."
    a, b = "ms to the first token, in pieces", "ms to the first token, whole"
    return [Row(what, Target(0.85, 0.92, Unit.PERCENT), tuple(pairs[1:]), a, b, (note,))]


async def busy(settings: Settings) -> list[Row]:
    """With two streams a stage, every stage computes nearly all the time."""
    rows = []
    target = Target(0.85, 0.92, Unit.PERCENT)
    for stages, streams in ((2, 4), (3, 6)):
        async with start_ring(RingPlan(stages, Sleep(row_ms=8))) as ring:
            await ring.wire()
            await ask_many(ring, streams, PROMPT_TOKENS, 8)
            pairs = [await _busy_pair(ring, streams) for _ in range(settings.pairs)]
        what = f"{stages} sleeping stages busy, {streams} streams (two a stage)"
        note = "A row costs 8 ms however many are batched, so tokens/s x 8 ms is the share of time a stage computes."
        rows.append(Row(what, target, tuple(pairs), "tokens/s", "tokens/s of a stage that never waits", (note,)))
    return rows


async def _busy_pair(ring: BenchRing, streams: int) -> Pair:
    """Throughput, against that of a stage that never waits."""
    return Pair.ratio(steady_rate(await ask_many(ring, streams, PROMPT_TOKENS, 60)), 1 / 0.008)


async def relay(settings: Settings) -> list[Row]:
    """The relay in between costs next to nothing when the way is as long."""
    rows = []
    async with start_proxy() as proxy, start_relay() as relay_port, start_ring(RingPlan(2, RELAY_SLEEP)) as ring:
        near = [await proxy.forward("127.0.0.1", relay_port, ONE_WAY_S / 2) for _ in ring.stages]
        far = [await proxy.forward("127.0.0.1", relay_port, ONE_WAY_S) for _ in ring.stages]
        pairs, far_pairs = [], []
        for _ in range(settings.pairs):
            direct = await _direct_rate(ring, proxy)
            pairs.append(Pair.ratio(await _relayed_rate(ring, near), direct))
            far_pairs.append(Pair.ratio(await _relayed_rate(ring, far), direct))
    what = "relay against direct, 20 ms round trip, two streams per stage: throughput"
    cost = "2 sleeping stages, a step of 2 ms + 3 ms a row, 4 streams, a relay process of its own."
    note = "Direct: 20 ms between the stages. Relayed: 10 ms between each stage and the relay, so the way is as long."
    a, b = "tokens/s through the relay", "tokens/s directly"
    rows.append(Row(what, Target(0.9, 0.95), tuple(pairs), a, b, (cost, note)))
    far_note = "Relayed: 20 ms between each stage and the relay, so the way is twice as long; for information."
    rows.append(Row("the same, the relay 20 ms from each stage", NO_TARGET, tuple(far_pairs), a, b, (cost, far_note)))
    return rows


RELAY_SLEEP = Sleep(base_ms=2, row_ms=3)


async def _direct_rate(ring: BenchRing, proxy: ProxyProcess) -> float:
    await ring.wire_delayed(proxy, ONE_WAY_S)
    return await _warm_rate(ring)


async def _relayed_rate(ring: BenchRing, ports: Sequence[int]) -> float:
    await ring.wire_relayed(ports)
    return await _warm_rate(ring)


async def _warm_rate(ring: BenchRing) -> float:
    """Tokens per second of two streams a stage, on links that have carried something."""
    streams = 2 * len(ring.stages)
    await ask_many(ring, streams, PROMPT_TOKENS, 8)
    return steady_rate(await ask_many(ring, streams, PROMPT_TOKENS, 80))


async def wakeups(settings: Settings) -> list[Row]:
    """For information: how late a sleep of 5 ms ends on this machine, which every row above contains."""
    late_ms = await asyncio.to_thread(_late_sleeps_ms)
    pair = Pair(statistics.median(late_ms), max(late_ms), statistics.median(late_ms))
    return [Row("a sleep of 5 ms ends late", Target(None, None, Unit.MS), (pair,), "median ms", "most ms")]


def _late_sleeps_ms() -> list[float]:
    late_ms = []
    for _ in range(100):
        due_s = time.monotonic() + 0.005
        time.sleep(0.005)
        late_ms.append((time.monotonic() - due_s) * 1e3)
    return late_ms
