"""Rings of real stage processes over real sockets: parity, both routes, cancels, crashes, epochs."""

import asyncio
import random
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from silentswarm.core.v1 import reason_pb2, stage_pb2
from silentswarm.ring.v1 import ring_pb2, ring_pb2_grpc
from silentswarm.stage.v1 import stage_pb2 as rpc
from swarm_core.errors import Reason
from swarm_rpc.channel import dial
from swarm_rpc.errors import error_of

from tests.integration.ring.stages import StageRing, greedy
from tests.models import make_tiny_model, reference_greedy

DIRECT, RELAY = stage_pb2.ROUTE_DIRECT, stage_pb2.ROUTE_RELAY


# One loop for the module: starting a stage imports torch, so rings are shared and every test takes a fresh epoch.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model("llama", tmp_path_factory.mktemp("llama"), layers=4)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def rings(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Callable]:
    """rings(n): a running ring of n stages, started at first use."""
    async with AsyncExitStack() as stack:
        started: dict[int, StageRing] = {}

        async def ring_of(stages: int) -> StageRing:
            if stages not in started:
                scratch = tmp_path_factory.mktemp(f"ring-{stages}")
                started[stages] = await stack.enter_async_context(StageRing(llama, scratch, stages, chunk=64))
            return started[stages]

        yield ring_of


def prompt_of(length: int, seed: int = 0) -> list[int]:
    numbers = random.Random(seed * 1000 + length)
    return [numbers.randrange(5, 200) for _ in range(length)]


@pytest.mark.parametrize("stages", [1, 2, 3, 4])
async def test_greedy_replies_equal_one_process_directly_and_through_the_relay(llama, rings, stages):
    prompts = {length: prompt_of(length) for length in (1, 2, 17, 300)}
    expected = {length: reference_greedy(llama, prompt, 16) for length, prompt in prompts.items()}
    ring = await rings(stages)
    for route in (DIRECT, RELAY) if stages > 1 else (stage_pb2.ROUTE_LOCAL,):
        assert all(response.connected for response in await ring.wire(route))
        lap = await ring.probe()
        replies = {length: await ring.greedy(prompt, 16) for length, prompt in prompts.items()}

        assert len(lap.stage_ms) == stages
        assert replies == expected


@pytest.mark.parametrize(("family", "options"), [("gemma3_text", {"sliding_window": 16}), ("qwen2", {"tied": False})])
async def test_other_families_run_in_a_ring_as_alone(tmp_path, family, options):
    folder = make_tiny_model(family, tmp_path / family, layers=4, **options)
    async with StageRing(folder, tmp_path, 2, chunk=64) as ring:
        await ring.wire(RELAY)
        for length in (1, 2, 17, 300):
            assert await ring.greedy(prompt_of(length), 16) == reference_greedy(folder, prompt_of(length), 16)


async def test_interleaved_sessions_get_what_they_would_get_alone(llama, rings):
    prompts = [prompt_of(3 + 7 * index, seed=index) for index in range(8)]
    expected = [reference_greedy(llama, prompt, 12) for prompt in prompts]
    ring = await rings(2)
    await ring.wire(DIRECT)
    replies = await asyncio.gather(*(ring.greedy(p, 12, str(index)) for index, p in enumerate(prompts)))

    assert list(replies) == expected
    await until_empty(ring)


@pytest.mark.parametrize("route", [DIRECT, RELAY])
async def test_a_caller_who_leaves_stops_every_stage_within_two_tokens(llama, rings, route):
    ring = await rings(3)
    await ring.wire(route)
    call = ring.generate(greedy(prompt_of(5), 400))
    tokens = 0
    while tokens < 5:
        tokens += len((await call.read()).tokens.ids)
    call.cancel()
    at_cancel = await ring.status(2)
    await until_empty(ring)
    after = await ring.status(2)

    assert after.positions - at_cancel.positions <= 2


@pytest.mark.parametrize("killed", [0, 1, 2])
async def test_a_killed_stage_breaks_a_reply_that_goes_on_when_its_neighbours_have_another(llama, rings, killed):
    """Nothing is computed twice but what the new stage lacks."""
    asked = greedy(prompt_of(5), 200)
    ring = await rings(3)
    spare = await ring.spare(killed)
    await ring.wire(DIRECT)
    call = ring.generate(asked)
    heard = [await call.read(), await call.read(), await call.read()]
    ring.stages[killed].process.send_signal(signal.SIGKILL)
    ending = await ending_of(call, heard)

    assert ending in (reason_pb2.REASON_LINK_BROKEN, grpc.StatusCode.UNAVAILABLE)
    for index in {0, 1, 2} - {killed}:
        await until(lambda index=index: has_no_session(ring, index))
        assert ring.stages[index].process.returncode is None
    await ring.replace(killed, spare)
    assert all(response.connected for response in await ring.wire(DIRECT, keeps=True, fresh=[killed]))
    told = [event for event in heard if event.HasField("tokens")]
    asked.resume.ids.extend(token for event in told for token in event.tokens.ids)
    asked.resume.sequence = told[-1].sequence
    before = [await ring.status(index) for index in range(3)]
    rest = [event async for event in ring.generate(asked)]
    after = [await ring.status(index) for index in range(3)]
    tokens = [*asked.resume.ids, *(token for event in rest for token in event.tokens.ids)]
    assert tokens == await ring.greedy(prompt_of(5), 200)
    assert rest[0].sequence == told[-1].sequence + 1
    assert after[0].resumed_kept - before[0].resumed_kept == 1
    rebuilt = [then.positions_rebuilt - first.positions_rebuilt for then, first in zip(after, before, strict=True)]
    assert rebuilt == [5 + len(asked.resume.ids) - 1 if index == killed else 0 for index in range(3)]


async def test_a_broken_ring_works_again_in_its_next_epoch(llama, rings):
    expected = reference_greedy(llama, prompt_of(9), 8)
    ring = await rings(2)
    await ring.wire(DIRECT)
    running = ring.generate(greedy(prompt_of(5), 400))
    await running.read()
    await ring.wire(RELAY)
    ended = await ending_of(running)
    await ring.probe()

    assert ended == reason_pb2.REASON_LINK_BROKEN
    assert await ring.greedy(prompt_of(9), 8) == expected


async def test_a_link_fault_is_told_with_its_epoch(rings):
    ring = await rings(2)
    await ring.wire(DIRECT)
    watching = ring.stages[0].stub.WatchFaults(rpc.WatchFaultsRequest(), timeout=30)
    reading = asyncio.ensure_future(watching.read())
    await ring.status(0)
    await asyncio.sleep(0.1)  # the watch is a stream without an answer of its own to wait for
    ring.stages[1].process.kill()
    fault = await reading
    watching.cancel()
    await ring.replace(1)

    assert (fault.kind, fault.epoch) == ("link", ring.epoch)


async def test_an_unreachable_next_stage_is_an_answer_that_names_the_address(llama, rings):
    ring = await rings(2)
    port, ring.stages[1].loaded.ring_port = ring.stages[1].loaded.ring_port, 1
    responses = await ring.wire(DIRECT)
    ring.stages[1].loaded.ring_port = port

    assert not responses[0].connected
    assert "127.0.0.1:1" in responses[0].failure


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"epoch": 99}, Reason.STALE_EPOCH),
        ({"placement_id": "another"}, Reason.STALE_EPOCH),
        ({"from_stage": 1}, Reason.BAD_REQUEST),
        ({"wire_version": 9}, Reason.BAD_REQUEST),
    ],
)
async def test_a_stranger_who_dials_a_stage_is_refused(llama, rings, change, reason):
    ring = await rings(2)
    await ring.wire(RELAY)
    channel = dial(f"127.0.0.1:{ring.stages[1].loaded.ring_port}")
    call = ring_pb2_grpc.RingStub(channel).Link(timeout=10)
    hello = {"wire_version": 1, "placement_id": "ring", "epoch": ring.epoch, "from_stage": 0, "to_stage": 1, **change}
    with pytest.raises(grpc.RpcError) as refused:
        await call.write(ring_pb2.LinkRequest(hello=ring_pb2.Hello(**hello)))
        await call.read()
    await channel.close()

    assert error_of(refused.value).why is reason


async def test_a_stage_ends_when_the_pipe_from_its_fellow_closes(llama, tmp_path):
    async with StageRing(llama, tmp_path, 1, is_forked=False) as ring:
        ring.stages[0].process.stdin.close()
        async with asyncio.timeout(10):
            code = await ring.stages[0].process.wait()

    assert code == 0


async def test_a_prompt_beyond_the_context_is_refused_with_both_numbers(llama, rings):
    ring = await rings(1)
    await ring.wire(DIRECT)
    events = [event async for event in ring.generate(greedy(prompt_of(500), 100))]

    assert events[0].failed.reason == reason_pb2.REASON_CONTEXT_TOO_LONG
    assert dict(events[0].failed.metadata)["needed_tokens"] == "600"
    assert dict(events[0].failed.metadata)["budget_tokens"] == "512"


async def ending_of(call, heard: list | None = None) -> int | grpc.StatusCode:
    """The reason of a reply's Failed event, or the code its call ended with. heard: takes the events before."""
    try:
        while (event := await call.read()) is not grpc.aio.EOF:
            if heard is not None:
                heard.append(event)
            if event.WhichOneof("event") == "failed":
                return event.failed.reason
        return await call.code()
    except grpc.RpcError as error:
        return error.code()


async def until_empty(ring: StageRing) -> None:
    for index in range(len(ring.stages)):
        await until(lambda index=index: has_no_session(ring, index))


async def has_no_session(ring: StageRing, index: int) -> bool:
    status = await ring.status(index)
    return status.sessions == 0 and status.kv_tokens_used == 0


async def until(condition, timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not await condition():
            await asyncio.sleep(0.02)
