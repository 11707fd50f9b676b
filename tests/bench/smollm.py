"""Rows of SmolLM2 in real stage processes against transformers on the same weights, and against one another.

Pinning: stage i of a ring runs on core i; the reference of one thread on core 0, that of two on both. The one who asks,
the proxy and the relay are not pinned.
"""

from swarm_core.slices import LayerRange

from tests.bench.cuts import leader_cut, told
from tests.bench.figures import NO_TARGET, Pair, Row, Target, Unit, quantile
from tests.bench.reference_process import start_reference
from tests.bench.ring import RingPlan, start_ring
from tests.bench.settings import Settings
from tests.bench.sleeping import ONE_WAY_S
from tests.bench.streams import ask, ask_many, prompt_of, steady_rate
from tests.delaying_proxy import measure_round_trip_s, start_proxy
from tests.models import even_ranges

PROMPT_TOKENS = 64
NEW_TOKENS = 64
STREAMS = 8
AGAINST_GENERATE = "tokens/s of transformers' generate, prefill not counted"


def one_stage(settings: Settings) -> RingPlan:
    """The whole model on core 0."""
    return RingPlan(1, servable=settings.servable, cores=(0,))


def two_stages(settings: Settings, cut: tuple[LayerRange, ...] = ()) -> RingPlan:
    """One stage on each core, cut as the leader cuts for two equal machines unless told otherwise."""
    return RingPlan(2, servable=settings.servable, cores=(0, 1), cut=cut or leader_cut(settings.servable, 2))


async def decode(settings: Settings) -> list[Row]:
    """One stage against generate: one stream, and eight. All threads of the stage share one core."""
    return await _decode_rows(settings, one_stage(settings), "all threads on one core")


async def decode_free(settings: Settings) -> list[Row]:
    """The same where the stage's event loop may run beside its one compute thread, as on any machine of two cores."""
    plan = RingPlan(1, servable=settings.servable)
    return await _decode_rows(settings, plan, "1 compute thread, the event loop where it likes")


async def _decode_rows(settings: Settings, plan: RingPlan, how: str) -> list[Row]:
    async with start_reference(settings.servable, 1, 0) as reference, start_ring(plan) as ring:
        await ring.wire()
        await ask_many(ring, 2, PROMPT_TOKENS, 8)
        one, many = [], []
        for _ in range(settings.pairs + 1):
            a = steady_rate([await ask(ring, prompt_of(PROMPT_TOKENS), NEW_TOKENS)])
            one.append(Pair.ratio(a, await reference.decode(1, PROMPT_TOKENS, NEW_TOKENS)))
            a = steady_rate(await ask_many(ring, STREAMS, PROMPT_TOKENS, NEW_TOKENS))
            many.append(Pair.ratio(a, await reference.decode(STREAMS, PROMPT_TOKENS, NEW_TOKENS)))
    a = "tokens/s of a stage process, as its caller sees them"
    return [
        Row(f"one stage, one stream, {how}: decode", Target(1.3, 1.6), tuple(one[1:]), a, AGAINST_GENERATE),
        Row(f"one stage, 8 streams, {how}: decode", Target(1.15, 1.3), tuple(many[1:]), a, AGAINST_GENERATE),
    ]


async def prefill(settings: Settings) -> list[Row]:
    """A prompt in one stage against one forward."""
    rows = []
    async with (
        start_reference(settings.servable, 1, 0) as reference,
        start_ring(one_stage(settings)) as ring,
    ):
        await ring.wire()
        for tokens in (512, 1500):
            pairs = []
            for turn in range(settings.pairs + 1):
                reply = await ask(ring, prompt_of(tokens, turn), 1)
                pairs.append(Pair.ratio(tokens / reply.first_token_s, await reference.prefill(tokens)))
            what = f"one stage, prompt of {tokens} tokens, 1 thread: prefill"
            a, b = "tokens / time to the first token", "tokens/s of one forward of transformers"
            rows.append(Row(what, Target(0.9, 1.0), tuple(pairs[1:]), a, b, ("In pieces of 256, as by default.",)))
    return rows


async def two(settings: Settings) -> list[Row]:
    """Two stages of one thread: against one stage for one stream, against two threads of the reference for eight."""
    async with (
        start_reference(settings.servable, 2, None) as reference,
        start_ring(one_stage(settings)) as single,
        start_ring(two_stages(settings)) as ring,
    ):
        await single.wire()
        await ring.wire()
        one, many, hops = [], [], []
        for _ in range(settings.pairs + 1):
            reply = await ask(ring, prompt_of(PROMPT_TOKENS), NEW_TOKENS)
            alone = await ask(single, prompt_of(PROMPT_TOKENS), NEW_TOKENS)
            one.append(Pair.ratio(steady_rate([reply]), steady_rate([alone])))
            token_ms, compute_ms = 1e3 / steady_rate([reply]), sum(reply.timing.stage_ms)
            hops.append(Pair(token_ms, compute_ms, (token_ms - compute_ms) / 2))
            a = steady_rate(await ask_many(ring, STREAMS, PROMPT_TOKENS, NEW_TOKENS))
            many.append(Pair.ratio(a, await reference.decode(STREAMS, PROMPT_TOKENS, NEW_TOKENS)))
    cut = f"Cut by the leader into {told(settings.servable, leader_cut(settings.servable, 2))}."
    what = "two stages of 1 thread, one stream: against one stage of 1 thread"
    rows = [Row(what, Target(0.93, 0.97), tuple(one[1:]), "tokens/s of two stages", "tokens/s of one", (cut,))]
    what = "two stages of 1 thread, 8 streams: against one process of 2 threads at batch 8"
    rows.append(Row(what, Target(0.9, 1.1), tuple(many[1:]), "tokens/s of the ring", AGAINST_GENERATE, (cut,)))
    return [*rows, hop_row(hops[1:])]


async def cut(settings: Settings) -> list[Row]:
    """For information: what the leader's cut is worth to 8 streams, against as many layers on each stage."""
    halves = even_ranges(leader_cut(settings.servable, 2)[-1].layer_count, 2)
    async with (
        start_ring(two_stages(settings)) as ring,
        start_ring(two_stages(settings, tuple(halves))) as halved,
    ):
        await ring.wire()
        await halved.wire()
        pairs = []
        for _ in range(settings.pairs + 1):
            a = steady_rate(await ask_many(ring, STREAMS, PROMPT_TOKENS, NEW_TOKENS))
            b = steady_rate(await ask_many(halved, STREAMS, PROMPT_TOKENS, NEW_TOKENS))
            pairs.append(Pair.ratio(a, b))
    what = "two stages, 8 streams, as the leader cuts: against as many layers on each"
    a = f"tokens/s of {told(settings.servable, leader_cut(settings.servable, 2))}"
    b = f"tokens/s of {told(settings.servable, tuple(halves))}"
    return [Row(what, NO_TARGET, tuple(pairs[1:]), a, b)]


def hop_row(pairs: list[Pair]) -> Row:
    """The hop between real stages."""
    what = "cost of a hop beyond compute, loopback, per token (2 stages of SmolLM2)"
    note = "A token takes two hops; the figure is (A - B) / 2."
    target = Target(2.0, 1.0, Unit.MS, is_least=False)
    return Row(what, target, tuple(pairs), "mean ms a token", "ms of compute a token, both stages", (note,))


async def distance(settings: Settings) -> list[Row]:
    """Eight streams over a distance against the same ring on loopback."""
    async with start_proxy() as proxy, start_ring(two_stages(settings)) as ring:
        pairs, laps_ms = [], []
        for _ in range(settings.pairs + 1):
            await ring.wire_delayed(proxy, ONE_WAY_S)
            far = steady_rate(await ask_many(ring, STREAMS, PROMPT_TOKENS, NEW_TOKENS))
            laps_ms += [taken_s * 1e3 for taken_s in await measure_round_trip_s(proxy, ONE_WAY_S, 20)]
            await ring.wire()
            near = steady_rate(await ask_many(ring, STREAMS, PROMPT_TOKENS, NEW_TOKENS))
            pairs.append(Pair.ratio(far, near))
    what = "two stages of 1 thread, 8 streams, 20 ms round trip: against loopback"
    note = f"The round trip measured {quantile(laps_ms, 0.5):.2f} ms (median), {quantile(laps_ms, 0.9):.2f} ms (p90)."
    return [Row(what, Target(0.8, 0.92), tuple(pairs[1:]), "tokens/s at 20 ms", "tokens/s on loopback", (note,))]
