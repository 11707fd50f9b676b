"""Joining epochs over real sockets, without a model: what is repeated, given up, or breaks half-way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
import pytest
from silentswarm.core.v1 import stage_pb2
from silentswarm.relay.v1 import relay_pb2_grpc
from silentswarm.ring.v1 import ring_pb2, ring_pb2_grpc
from swarm_core.errors import LinkBroken, StaleEpoch
from swarm_leader.relay.servicer import RelayServicer
from swarm_rpc.channel import dial
from swarm_rpc.server import listen, make_server
from swarm_stage.engine.engine import Arrived, BeginEpoch
from swarm_stage.engine.inbox import Inbox
from swarm_stage.ring.beats import Pace
from swarm_stage.ring.direct import RingServicer
from swarm_stage.ring.link import RingPlace
from swarm_stage.ring.wiring import WireOrder, Wiring

DIRECT, RELAY, LOCAL = stage_pb2.ROUTE_DIRECT, stage_pb2.ROUTE_RELAY, stage_pb2.ROUTE_LOCAL


class Stage:
    """A stage's links, with an inbox nobody empties."""

    def __init__(self, index: int, count: int, pace: Pace | None = None) -> None:
        self.inbox = Inbox(asyncio.get_running_loop())
        self.faults: list[tuple[int, str]] = []
        self.peers: list[int | None] = []
        self.broke = asyncio.Event()
        self.wiring = Wiring(RingPlace("ring", index, count), self.inbox, self._note, pace=pace)
        self.server = make_server()
        ring_pb2_grpc.add_RingServicer_to_server(RingServicer(self.wiring.place, self.wiring), self.server)
        self.address = f"127.0.0.1:{listen(self.server, '127.0.0.1:0')}"

    def _note(self, epoch: int, why: str, peer_stage: int | None) -> None:
        self.faults.append((epoch, why))
        self.peers.append(peer_stage)
        self.broke.set()

    def taken(self, kind: type) -> list:
        return [item for item in self.inbox.take(0) if isinstance(item, kind)]


@asynccontextmanager
async def stages(count: int) -> AsyncIterator[list[Stage]]:
    ring = [Stage(index, count) for index in range(count)]
    for stage in ring:
        await stage.server.start()
    try:
        yield ring
    finally:
        for stage in ring:
            await stage.wiring.close()
            await stage.server.stop(0)


def order(
    epoch: int, address: str = "", route=DIRECT, previous=DIRECT, relay: str = "", timeout_s: float = 5
) -> WireOrder:
    return WireOrder(epoch, route, previous, (address,) if address else (), relay, timeout_s)


async def join_both(ring: list[Stage], epoch: int) -> None:
    await asyncio.gather(
        ring[0].wiring.join(order(epoch, ring[1].address)), ring[1].wiring.join(order(epoch, ring[0].address))
    )


async def test_the_same_order_again_changes_nothing_also_in_a_ring_of_one():
    async with stages(1) as (alone,):
        for _ in range(2):
            await alone.wiring.join(order(1, route=LOCAL, previous=LOCAL))

        assert len(alone.taken(BeginEpoch)) == 1


async def test_a_batch_goes_from_stage_to_stage_and_an_older_epoch_is_refused():
    async with stages(2) as ring:
        await join_both(ring, 2)
        ring[0].wiring.send_from_engine(ring_pb2.FrameBatch(epoch=2, frames=[ring_pb2.Frame(session=1)]))
        arrived: list = []
        async with asyncio.timeout(5):
            while not arrived:
                arrived = ring[1].taken(Arrived)
                await asyncio.sleep(0.01)

        assert arrived[0].batch.frames[0].session == 1
        with pytest.raises(StaleEpoch):
            await ring[0].wiring.join(order(1, ring[1].address))


async def test_a_hello_that_is_given_up_before_its_first_batch_may_come_again():
    """A stage that stalls for a moment accepted late, and the dialler's next try was refused until the timeout."""
    async with stages(2) as ring:
        joining = asyncio.ensure_future(ring[1].wiring.join(order(1, ring[0].address)))
        channel = dial(ring[1].address)
        hello = ring_pb2.Hello(wire_version=1, placement_id="ring", epoch=1, from_stage=0, to_stage=1)
        async with asyncio.timeout(5):
            while True:
                call = ring_pb2_grpc.RingStub(channel).Link()
                try:
                    await call.write(ring_pb2.LinkRequest(hello=hello))
                    assert await call.read() is not grpc.aio.EOF
                    break
                except (grpc.RpcError, asyncio.InvalidStateError):
                    await asyncio.sleep(0.01)
        call.cancel()
        await channel.close()
        await ring[0].wiring.join(order(1, ring[1].address))
        await joining

        assert ring[1].faults == []


async def test_wiring_that_is_given_up_leaves_no_half_joined_epoch():
    async with stages(2) as ring:
        joining = asyncio.ensure_future(ring[0].wiring.join(order(1, "127.0.0.1:1", timeout_s=30)))
        async with asyncio.timeout(5):
            while not ring[0].taken(BeginEpoch):
                await asyncio.sleep(0.01)
        joining.cancel()
        await asyncio.wait({joining})

        assert [epoch for epoch, _ in ring[0].faults] == [1]
        with pytest.raises(StaleEpoch):
            await ring[0].wiring.join(order(1, ring[1].address))
        await join_both(ring, 2)


async def test_a_lane_that_ends_while_the_next_stage_is_dialled_breaks_the_whole_epoch():
    relay = make_server()
    servicer = RelayServicer()
    relay_pb2_grpc.add_RelayServicer_to_server(servicer, relay)
    address = f"127.0.0.1:{listen(relay, '127.0.0.1:0')}"
    await relay.start()
    async with stages(2) as ring:
        joining = asyncio.ensure_future(
            ring[0].wiring.join(order(1, ring[1].address, previous=RELAY, relay=address, timeout_s=6))
        )
        async with asyncio.timeout(5):
            while not any("receiver" in lane.attached for lane in servicer.board.lanes()):
                await asyncio.sleep(0.01)
        await relay.stop(0)
        await asyncio.wait_for(ring[0].broke.wait(), 5)

        with pytest.raises(LinkBroken):
            await joining


async def test_frames_of_a_broken_epoch_do_not_reach_the_engine():
    async with stages(2) as ring:
        await join_both(ring, 1)
        await ring[1].wiring.close()
        await asyncio.wait_for(ring[0].broke.wait(), 5)
        ring[0].inbox.take(0)
        await ring[0].wiring.deliver(1, ring_pb2.FrameBatch(epoch=1))

        assert ring[0].taken(Arrived) == []
