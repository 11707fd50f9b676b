"""Signs of life on real links: a frozen neighbour, a half-open line, and stages that know nothing of beats.

Time is scaled: a beat every 0.1 s, and 0.5 s of silence is a fault.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import grpc
from silentswarm.relay.v1 import relay_pb2_grpc
from silentswarm.ring.v1 import ring_pb2, ring_pb2_grpc
from swarm_leader.relay.servicer import RelayServicer
from swarm_rpc.channel import dial
from swarm_rpc.server import listen, make_server
from swarm_stage.engine.engine import Arrived
from swarm_stage.ring.beats import Pace
from swarm_stage.ring.direct import RingServicer

from tests.delaying_proxy import DOWN, UP, ProxyProcess, start_proxy
from tests.integration.ring.test_wiring import RELAY, Stage, order

PACE = Pace(interval_s=0.1, silent_min_s=0.5)
WITHIN_S = 5.0  # the machine may be busy
SOME_PROMISES_S = 1.5


class FreezableServicer(RingServicer):
    """A stage of an earlier version: it takes what comes and answers no beat."""

    async def _answer(self, epoch: int, requests: AsyncIterator[ring_pb2.LinkRequest]) -> AsyncIterator[ring_pb2.Beat]:
        async for _ in requests:
            pass
        return
        yield


@asynccontextmanager
async def pair(pace: Pace = PACE) -> AsyncIterator[list[Stage]]:
    """Two stages whose servers listen."""
    ring = [Stage(index, 2, pace) for index in range(2)]
    for stage in ring:
        await stage.server.start()
    try:
        yield ring
    finally:
        for stage in ring:
            await stage.wiring.close()
            await stage.server.stop(0)


@asynccontextmanager
async def relay() -> AsyncIterator[str]:
    """A relay in this process; its address."""
    server = make_server()
    relay_pb2_grpc.add_RelayServicer_to_server(RelayServicer(), server)
    address = f"127.0.0.1:{listen(server, '127.0.0.1:0')}"
    await server.start()
    try:
        yield address
    finally:
        await server.stop(0)


async def forward(proxy: ProxyProcess, address: str) -> tuple[int, str]:
    """A forward to an address: its port, and where to dial it."""
    port = await proxy.forward("127.0.0.1", int(address.rpartition(":")[2]), 0.0)
    return port, f"127.0.0.1:{port}"


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():
            await asyncio.sleep(0.01)


async def both(*joining: Awaitable[object]) -> None:
    await asyncio.gather(*joining)


async def wire_directly(ring: list[Stage], first_dials: str = "", epoch: int = 1) -> None:
    """first_dials: where stage 0 dials stage 1; empty is stage 1's own address."""
    await both(
        ring[0].wiring.join(order(epoch, first_dials or ring[1].address)),
        ring[1].wiring.join(order(epoch, ring[0].address)),
    )


async def test_an_idle_ring_lives_on_and_beats_reach_no_engine():
    """An idle stage stays idle: its inbox gets nothing, so SWARM_MODEL_IDLE_UNLOAD_S still counts."""
    async with pair() as ring:
        await wire_directly(ring)
        await until(lambda: ring[0].wiring.link_round_trip_ms and ring[1].wiring.link_round_trip_ms)
        await asyncio.sleep(SOME_PROMISES_S)

        assert ring[0].faults == [] and ring[1].faults == []
        assert ring[0].taken(Arrived) == [] and ring[1].taken(Arrived) == []


async def test_the_round_trip_to_the_next_stage_is_measured():
    async with pair() as ring, start_proxy() as proxy:
        port, address = await forward(proxy, ring[1].address)
        await proxy.delay(port, 0.03)
        await wire_directly(ring, address)
        await until(lambda: ring[0].wiring.link_round_trip_ms)
        far_ms, near_ms = ring[0].wiring.link_round_trip_ms, ring[1].wiring.link_round_trip_ms

        assert far_ms is not None and 60 <= far_ms < 200
        assert near_ms is not None and near_ms < far_ms


async def test_a_line_that_is_half_open_both_ways_is_noticed_at_both_ends_and_names_the_neighbour():
    async with pair() as ring, start_proxy() as proxy:
        port, address = await forward(proxy, ring[1].address)
        await wire_directly(ring, address)
        await until(lambda: ring[0].wiring.link_round_trip_ms)
        await proxy.lose(port)
        await until(lambda: ring[0].faults and ring[1].faults)

        assert "nothing from stage 1 for " in ring[0].faults[0][1] or "closed the link" in ring[0].faults[0][1]
        reasons = ring[0].faults[0][1] + ring[1].faults[0][1]
        assert "its process, its machine or the way to it is frozen" in reasons
        assert ring[0].peers == [1] and ring[1].peers == [0]


async def test_a_stage_that_hears_nothing_says_so_whichever_way_the_line_is_dead():
    """UP: the listener hears nothing of the dialler. DOWN: the dialler nothing of the listener."""
    for direction, hears_nothing, silent in ((UP, 1, 0), (DOWN, 0, 1)):
        async with pair() as ring, start_proxy() as proxy:
            port, address = await forward(proxy, ring[1].address)
            await wire_directly(ring, address)
            await until(lambda ring=ring: ring[0].wiring.link_round_trip_ms)
            await proxy.lose(port, direction)
            await asyncio.wait_for(ring[hears_nothing].broke.wait(), WITHIN_S)

            assert ring[hears_nothing].faults[0][1].startswith(f"nothing from stage {silent} for ")
            assert ring[hears_nothing].peers == [silent]


async def test_a_relayed_lane_that_brings_nothing_more_breaks_at_its_receiver():
    async with relay() as address, pair() as ring, start_proxy() as proxy:
        port, through = await forward(proxy, address)
        await both(
            ring[0].wiring.join(order(1, route=RELAY, previous=RELAY, relay=through)),
            ring[1].wiring.join(order(1, route=RELAY, previous=RELAY, relay=address)),
        )
        await asyncio.sleep(SOME_PROMISES_S)
        idle = [*ring[0].faults, *ring[1].faults]
        await proxy.lose(port)
        await asyncio.wait_for(ring[1].broke.wait(), WITHIN_S)

        assert idle == []
        assert ring[1].faults[0][1].startswith("nothing from stage 0 for ")
        assert ring[1].peers == [0]


async def test_a_busy_engine_that_reads_nothing_is_no_silence():
    """Its inbox is full, so neither frames nor beats behind them are read, and it still says that it lives."""
    async with pair() as ring:
        await wire_directly(ring)
        for session in range(600):
            frame = ring_pb2.Frame(session=session)
            ring[0].wiring.send_from_engine(ring_pb2.FrameBatch(epoch=1, frames=[frame]))
        await asyncio.sleep(SOME_PROMISES_S)
        while_full = [*ring[0].faults, *ring[1].faults]
        arrived: list = []
        async with asyncio.timeout(WITHIN_S):
            while len(arrived) < 600:
                arrived += ring[1].taken(Arrived)
                await asyncio.sleep(0.01)

        assert while_full == [] and ring[0].faults == []


async def test_a_large_batch_on_a_slow_line_is_no_silence():
    """It takes a second to be whole, twice what silence may last; nothing else passes meanwhile."""
    async with pair() as ring, start_proxy() as proxy:
        port, address = await forward(proxy, ring[1].address)
        await wire_directly(ring, address)
        await until(lambda: ring[0].wiring.link_round_trip_ms)
        await proxy.throttle(port, 400_000)
        frame = ring_pb2.Frame(session=1)
        frame.hidden.hidden.data = bytes(400_000)
        ring[0].wiring.send_from_engine(ring_pb2.FrameBatch(epoch=1, frames=[frame]))
        arrived: list = []
        await until(lambda: arrived.extend(ring[1].taken(Arrived)) or arrived)

        assert len(arrived[0].batch.frames[0].hidden.hidden.data) == 400_000
        assert ring[0].faults == [] and ring[1].faults == []


async def test_a_stage_whose_own_loop_stood_still_blames_no_neighbour():
    """Both stages run on this loop; neither speaks while it is blocked, and neither blames the other for that."""
    async with pair() as ring:
        await wire_directly(ring)
        await until(lambda: ring[0].wiring.link_round_trip_ms and ring[1].wiring.link_round_trip_ms)
        block_loop(2.0)
        await asyncio.sleep(SOME_PROMISES_S)

        assert ring[0].faults == [] and ring[1].faults == []


async def test_a_next_stage_of_an_earlier_version_answers_no_beat_and_is_never_judged():
    async with pair() as ring:
        listener = make_server()
        ring_pb2_grpc.add_RingServicer_to_server(FreezableServicer(ring[1].wiring.place, ring[1].wiring), listener)
        address = f"127.0.0.1:{listen(listener, '127.0.0.1:0')}"
        await listener.start()
        try:
            await wire_directly(ring, address)
            await asyncio.sleep(SOME_PROMISES_S)

            assert ring[0].faults == []
            assert ring[0].wiring.link_round_trip_ms is None
        finally:
            await listener.stop(0)


async def test_a_previous_stage_of_an_earlier_version_sends_no_beat_gets_none_and_is_never_judged():
    async with pair() as ring:
        joining = asyncio.ensure_future(ring[1].wiring.join(order(1, ring[0].address)))
        hello = ring_pb2.Hello(wire_version=1, placement_id="ring", epoch=1, from_stage=0, to_stage=1)
        async with dial(ring[1].address) as channel:
            call = await accepted(ring_pb2_grpc.RingStub(channel), hello)
            await call.write(
                ring_pb2.LinkRequest(batch=ring_pb2.FrameBatch(epoch=1, frames=[ring_pb2.Frame(session=1)]))
            )
            answers = asyncio.ensure_future(call.read())
            await asyncio.sleep(SOME_PROMISES_S)

            assert ring[1].faults == [] and not answers.done()
            answers.cancel()
            call.cancel()
        joining.cancel()
        with suppress(asyncio.CancelledError):
            await joining


async def accepted(stub: ring_pb2_grpc.RingStub, hello: ring_pb2.Hello) -> grpc.aio.StreamStreamCall:
    """A link whose hello was taken, asked again until the listener has joined the epoch."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            call = stub.Link()
            try:
                await call.write(ring_pb2.LinkRequest(hello=hello))
                assert await call.read() is not grpc.aio.EOF
                return call
            except (grpc.RpcError, asyncio.InvalidStateError):
                await asyncio.sleep(0.01)


def block_loop(for_s: float) -> None:
    """Stand still as a stopped process does."""
    time.sleep(for_s)
