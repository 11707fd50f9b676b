"""For information: what the interpreter's switch interval, the event loop and the collector are worth in a ring."""

import importlib.util
from dataclasses import replace

from tests.bench.figures import NO_TARGET, Pair, Row, Target, Unit
from tests.bench.ring import BenchRing, RingPlan, Sleep, start_ring
from tests.bench.settings import Settings
from tests.bench.smollm import NEW_TOKENS, PROMPT_TOKENS, STREAMS, two_stages
from tests.bench.streams import ask, ask_many, median_gap_s, prompt_of, steady_rate

VARIANTS = {
    "switch interval 0.5 ms": {"BENCH_SWITCH_MS": "0.5"},
    "switch interval 0.05 ms": {"BENCH_SWITCH_MS": "0.05"},
    "no garbage collection": {"BENCH_GC_OFF": "1"},
    "uvloop": {"BENCH_UVLOOP": "1"},
}


async def variants(settings: Settings) -> list[Row]:
    """Each against things as they are: the hop between sleeping stages, SmolLM2 with one stream and with eight."""
    rows = []
    for name, env in VARIANTS.items():
        if "BENCH_UVLOOP" in env and not importlib.util.find_spec("uvloop"):
            continue
        rows += [await _hop_row(settings, name, env), *await _rate_rows(settings, name, env)]
    return rows


async def _hop_row(settings: Settings, name: str, env: dict[str, str]) -> Row:
    plan = RingPlan(2, Sleep(base_ms=5))
    async with start_ring(plan) as usual, start_ring(replace(plan, env=env)) as other:
        pairs = []
        for ring in (usual, other):
            await ring.wire()
            await ask(ring, prompt_of(PROMPT_TOKENS), 32)
        for _ in range(settings.pairs):
            a, b = await _hop_ms(other), await _hop_ms(usual)
            pairs.append(Pair(a, b, a - b))
    what = f"{name}: a hop between sleeping stages, against as it is"
    return Row(what, Target(None, None, Unit.MS), tuple(pairs), "ms with it", "ms without")


async def _hop_ms(ring: BenchRing) -> float:
    reply = await ask(ring, prompt_of(PROMPT_TOKENS), 150)
    return (median_gap_s([reply]) * 1e3 - sum(reply.timing.stage_ms)) / 2


async def _rate_rows(settings: Settings, name: str, env: dict[str, str]) -> list[Row]:
    plan = replace(two_stages(settings), is_variant=True)
    async with start_ring(plan) as usual, start_ring(replace(plan, env=env)) as other:
        one, many = [], []
        for ring in (usual, other):
            await ring.wire()
            await ask(ring, prompt_of(PROMPT_TOKENS), 8)
        for _ in range(settings.pairs):
            one.append(Pair.ratio(await _rate(other, 1), await _rate(usual, 1)))
            many.append(Pair.ratio(await _rate(other, STREAMS), await _rate(usual, STREAMS)))
    what = f"{name}: two stages of SmolLM2"
    return [
        Row(f"{what}, one stream, against as it is", NO_TARGET, tuple(one), "tokens/s with it", "tokens/s without"),
        Row(f"{what}, 8 streams, against as it is", NO_TARGET, tuple(many), "tokens/s with it", "tokens/s without"),
    ]


async def _rate(ring: BenchRing, streams: int) -> float:
    return steady_rate(await ask_many(ring, streams, PROMPT_TOKENS, NEW_TOKENS))
