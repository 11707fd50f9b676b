"""Many sessions in rings of real stage processes: whatever comes, goes or breaks, replies are right and nothing stays.

A lap is the time a token of a running reply takes: one position through every stage and back.
"""

import asyncio
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import psutil
import pytest
import pytest_asyncio
import torch
from silentswarm.core.v1 import reason_pb2, stage_pb2

from tests.integration.ring.crowd import Heard, Leaves, User, assert_heard, make_crowd, visit
from tests.integration.ring.lone_runs import LoneModel, make_prompts, make_spelled_llama
from tests.integration.ring.relay_process import RunningRelay, start_relay
from tests.integration.ring.stages import StageRing
from tests.integration.ring.watch import Watch, gathered, statuses, until_free, until_statuses

DIRECT, RELAY = stage_pb2.ROUTE_DIRECT, stage_pb2.ROUTE_RELAY
ROUTES = pytest.mark.parametrize("route", [DIRECT, RELAY], ids=["direct", "relay"])
STAGES = 3
KV_TOKENS = 4096
IN_FLIGHT = 16

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_spelled_llama(tmp_path_factory.mktemp("spelled"))


@pytest.fixture(scope="module")
def lone(llama: Path) -> LoneModel:
    torch.set_num_threads(1)
    return LoneModel(llama)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def relay() -> AsyncIterator[RunningRelay]:
    async with start_relay() as relay:
        yield relay


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ring(llama: Path, relay: RunningRelay, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StageRing]:
    """Three stages of the spelled llama. Tests wire it, and leave it whole."""
    scratch, sizes = tmp_path_factory.mktemp("ring"), {"kv_tokens": KV_TOKENS, "in_flight_max": IN_FLIGHT}
    async with StageRing(llama, scratch, STAGES, 16, relay_address=relay.address, **sizes) as ring:
        yield ring


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sleeping(
    llama: Path, relay: RunningRelay, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[StageRing]:
    """Three stages that sleep 40 ms a step, so that a lap is long, with wide hidden states (16 KiB a position)."""
    program = ("tests.bench.sleeping_stage", "--base-ms", "40", "--hidden-size", "4096", "--layers", "4")
    scratch = tmp_path_factory.mktemp("sleeping")
    async with StageRing(llama, scratch, STAGES, 0, "sleeping", relay_address=relay.address, program=program) as ring:
        yield ring


async def wire(ring: StageRing, route: stage_pb2.Route, kv_tokens: int | None = None) -> None:
    """The next epoch, every link up."""
    assert all(answer.connected for answer in await ring.wire(route, kv_tokens))


async def assert_right_at_once(ring: StageRing, lone: LoneModel, users: list[User]) -> None:
    """All users at once; nothing is wrong while they are there and nothing is left behind them."""
    async with Watch(ring) as watch:
        heard = await gathered(*(visit(ring, user) for user in users), timeout_s=100)
        await until_free(ring)
    assert_heard(users, heard, lone)
    watch.assert_within_budget()
    assert sum(status.frames_refused for status in await statuses(ring)) == 0


async def test_sixty_four_replies_at_once_are_lone_runs_and_leave_nothing_behind(ring, lone):
    await wire(ring, DIRECT)
    await ring.probe()

    await assert_right_at_once(ring, lone, make_crowd(random.Random(1), 64))


@pytest.mark.slow
@pytest.mark.timeout(5400)
async def test_a_long_soak_of_random_crowds_piece_sizes_and_routes(ring, lone):
    numbers = random.Random(os.urandom(8))
    for turn in range(40):
        seed = numbers.randrange(2**32)
        print(f"crowd {turn}: seed {seed}")
        if turn % 5 == 0:
            ring.chunk = numbers.choice([0, 16, 50, 256])
            ring.stages[0].process.kill()
            await ring.replace(0)
        await wire(ring, numbers.choice([DIRECT, RELAY]), kv_tokens=numbers.choice([None, 600]))
        await assert_right_at_once(ring, lone, make_crowd(random.Random(seed), 128, longest=300, new_tokens=64))


@pytest.mark.parametrize(
    ("killed", "route", "chunk"), [(0, DIRECT, 0), (1, RELAY, 0), (0, RELAY, 50)], ids=lambda value: str(value)
)
async def test_eight_replies_end_soon_after_a_stage_is_killed_and_the_next_epoch_serves_sixty_four(
    ring, lone, killed, route, chunk
):
    """The ring comes back with prompts in pieces of another size, where the killed stage is the one that cuts them."""
    await wire(ring, route)
    prompts = make_prompts(8, random.Random(killed), 60)
    endless = [User(f"endless-{place}", prompt, 400) for place, prompt in enumerate(prompts)]
    all_heard = [Heard() for _ in endless]
    visits = [asyncio.ensure_future(visit(ring, *pair)) for pair in zip(endless, all_heard, strict=True)]
    await until_true(lambda: all(len(heard.ids) > 3 for heard in all_heard))
    ring.stages[killed].process.send_signal(signal.SIGKILL)
    killed_s = asyncio.get_running_loop().time()
    await gathered(*visits, timeout_s=10)

    assert max(heard.ended_s for heard in all_heard) - killed_s < 2
    for heard in all_heard:
        if heard.failed is None:
            assert killed == 0 and heard.code is grpc.StatusCode.UNAVAILABLE  # its fellow puts it into words
        else:
            assert heard.failed.reason == reason_pb2.REASON_LINK_BROKEN and heard.failed.message
    ring.chunk = chunk
    await ring.replace(killed)
    await wire(ring, route)
    await assert_right_at_once(ring, lone, make_crowd(random.Random(chunk), 64))


async def test_what_never_fits_is_refused_with_both_numbers_before_anything_is_computed(ring):
    await wire(ring, DIRECT, kv_tokens=300)
    before = await until_free(ring)
    too_long = [(250, 51), (1, 300), (300, 1), (400, 100), (500, 500)]
    users = [User(f"long-{place}", (7,) * prompt, new) for place, (prompt, new) in enumerate(too_long)]
    all_heard = await gathered(*(visit(ring, user) for user in users), timeout_s=10)
    after = await statuses(ring)

    for heard, (prompt, new) in zip(all_heard, too_long, strict=True):
        assert heard.failed.reason == reason_pb2.REASON_CONTEXT_TOO_LONG
        assert heard.failed.metadata["needed_tokens"] == str(prompt + new)
        assert heard.failed.metadata["budget_tokens"] == "300"
    assert [status.positions for status in after] == [status.positions for status in before]
    assert [status.requests for status in after] == [status.requests for status in before]
    assert after[0].too_long - before[0].too_long == len(too_long)
    assert after[0].failed == before[0].failed


@ROUTES
async def test_a_small_budget_is_never_exceeded_and_everyone_ends(ring, lone, route):
    """Requests of every size against 300 tokens: some never fit, most wait, all end, none beyond the budget."""
    await wire(ring, route, kv_tokens=300)
    numbers = random.Random(route)
    users = [
        User(
            f"fuzz-{place}",
            prompt,
            numbers.choice([1, 5, 20, 60]) if place % 8 else 300,
            caller=numbers.choice(["ann", "bob", ""]),
        )
        for place, prompt in enumerate(make_prompts(40, numbers, 290))
    ]
    before = await until_free(ring)
    async with Watch(ring) as watch:
        all_heard = await gathered(*(visit(ring, user) for user in users), timeout_s=100)
        after = await until_free(ring)
    fitting, too_long = [], 0
    for user, heard in zip(users, all_heard, strict=True):
        if len(user.prompt) + user.new_tokens > 300:
            assert heard.failed.reason == reason_pb2.REASON_CONTEXT_TOO_LONG
            assert not heard.started
            too_long += 1
        else:
            fitting.append((user, heard))

    assert_heard([user for user, _ in fitting], [heard for _, heard in fitting], lone)
    watch.assert_within_budget()
    assert too_long and after[0].too_long - before[0].too_long == too_long
    assert after[0].failed == before[0].failed
    waited = [heard.positions for _, heard in fitting if heard.positions]
    assert len(waited) > len(fitting) / 2
    assert all(min(positions) >= 1 and max(positions) <= len(users) for positions in waited)


async def test_a_request_for_the_whole_budget_is_not_starved_by_small_ones(ring):
    """Six users of another caller ask again and again; the large one starts although it never fits beside them."""
    await wire(ring, DIRECT, kv_tokens=300)
    large, large_heard, started_meanwhile = User("large", (9,) * 250, 50, caller="ann"), Heard(), 0

    async def keep_asking(place: int) -> None:
        nonlocal started_meanwhile
        turn = 0
        while not large_heard.started:
            turn += 1
            has_waited = bool(large_heard.positions)
            await visit(ring, User(f"small-{place}-{turn}", (place + 5,) * 20, 10, caller="bob"))
            started_meanwhile += has_waited

    small = [asyncio.ensure_future(keep_asking(place)) for place in range(6)]
    await until_true(lambda: all(not task.done() for task in small))
    await gathered(visit(ring, large, large_heard), *small, timeout_s=30)
    await until_free(ring)

    assert large_heard.done
    assert started_meanwhile <= 8 + 6  # eight may pass it, six may have been on their way


@ROUTES
@pytest.mark.parametrize("ending", ["cancel", "disconnect", "deadline", "max_tokens", "stop"])
async def test_whatever_ends_a_reply_frees_it_on_every_stage_within_one_lap(sleeping, route, ending):
    """Laps are counted by the tokens of another reply: one that was under way, and one more."""
    user = {
        "cancel": User("u", (5,) * 10, 100, leaves=Leaves.CANCELLING, patience=3),
        "disconnect": User("u", (5,) * 10, 100, leaves=Leaves.DISCONNECTING, patience=3),
        "deadline": User("u", (5,) * 10, 100, leaves=Leaves.AT_A_DEADLINE, patience=6),
        "max_tokens": User("u", (5,) * 10, 4),
        "stop": User("u", (5,) * 10, 100, stop=(112,)),
    }[ending]
    async with witness_on(sleeping, route) as witness:
        heard = await visit(sleeping, user)
        tokens_before = len(witness.ids)
        await until_statuses(sleeping, lambda all_of: [status.sessions for status in all_of] == [1] * STAGES)
        laps = len(witness.ids) - tokens_before
        held = await statuses(sleeping)

    assert laps <= 2
    assert heard.ids and bool(heard.done) == (ending in ("max_tokens", "stop"))
    assert len({status.kv_tokens_used for status in held}) <= 2  # the witness's alone, perhaps in mid-lap
    assert held[0].kv_tokens_reserved == 500
    await until_free(sleeping)


@asynccontextmanager
async def witness_on(ring: StageRing, route: stage_pb2.Route) -> AsyncIterator[Heard]:
    """A reply that runs all the while, on a ring wired for it."""
    await wire(ring, route)
    witness = Heard()
    running = asyncio.ensure_future(visit(ring, User("witness", (6,) * 10, 490), witness))
    try:
        await until_true(lambda: len(witness.ids) > 1)
        yield witness
    finally:
        running.cancel()
        await asyncio.wait({running})


@ROUTES
async def test_a_stage_that_stops_for_a_while_costs_time_and_nothing_else(ring, lone, route):
    await wire(ring, route)
    users = [User(f"held-{place}", prompt, 60) for place, prompt in enumerate(make_prompts(8, random.Random(5), 60))]
    all_heard = [Heard() for _ in users]
    visits = [asyncio.ensure_future(visit(ring, *pair)) for pair in zip(users, all_heard, strict=True)]
    await until_true(lambda: all(heard.ids for heard in all_heard))
    async with stopped(ring, 1):
        await asyncio.sleep(0.5)  # what was under way arrives
        at_stop = await ring.status(0)
        await asyncio.sleep(0.5)
        later = await ring.status(0)
    await gathered(*visits, timeout_s=30)

    assert at_stop.sessions == later.sessions > 0
    assert later.positions - at_stop.positions == 0  # all wait for the ring; stage 0 has nothing to compute
    assert_heard(users, all_heard, lone)
    await until_free(ring)


@ROUTES
async def test_memory_stays_bounded_while_a_stage_does_not_read_and_callers_come_and_go(sleeping, relay, route):
    """Eighty callers give up in front of a stopped stage, each with 6 MiB of prompt sent: 480 MiB in all."""
    await wire(sleeping, route)
    await sleeping.probe()
    before, relay_before = await until_free(sleeping), psutil.Process(relay.pid).memory_info().rss
    users = [User(f"gone-{place}", (7,) * 384, 4, leaves=Leaves.AT_A_DEADLINE, patience=2) for place in range(80)]
    gate = asyncio.Semaphore(8)

    async def come_and_go(user: User) -> None:
        async with gate:
            await visit(sleeping, user)

    async with stopped(sleeping, 1):
        await gathered(*map(come_and_go, users), timeout_s=20)
        during, relay_during = await sleeping.status(0), psutil.Process(relay.pid).memory_info().rss
    after = await until_free(sleeping)
    heard = await visit(sleeping, User("stays", (7,) * 384, 4))

    assert during.positions - before[0].positions >= 20 * 384  # it went on computing for those who came
    assert during.memory_bytes - before[0].memory_bytes < HELD_BYTES_MAX
    assert relay_during - relay_before < LANE_BYTES_MAX + HELD_BYTES_MAX
    assert [status.spec.epoch for status in after] == [sleeping.epoch] * STAGES
    assert heard.ids == [100, 484, 485, 486]  # as a sleeping stage draws


HELD_BYTES_MAX = 128 * 2**20  # of prompts of 6 MiB: one a stage, each as tensor, as message and in gRPC's buffers
LANE_BYTES_MAX = 128 * 2**20  # what the relay queues on a lane before its sender must wait


@asynccontextmanager
async def stopped(ring: StageRing, index: int) -> AsyncIterator[None]:
    """A stage that neither reads nor answers for the time of the block."""
    process = ring.stages[index].process
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


async def until_true(condition, timeout_s: float = 20.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)
