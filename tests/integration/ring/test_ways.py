"""A ring whose way breaks: the relay that dies or freezes, and a direct link that never comes back. No model.

Time of beats is scaled: one every 0.1 s, and 0.5 s of silence is a fault.
"""

import asyncio
import os
import signal

import pytest
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import LinkBroken
from swarm_stage.engine.engine import Arrived

from tests.delaying_proxy import start_proxy
from tests.integration.ring.relay_process import start_relay
from tests.integration.ring.test_beats import both, forward, pair, relay, until, wire_directly
from tests.integration.ring.test_wiring import RELAY, Stage, order

NOTICED_S = 2.0


async def wire_by_relay(ring: list[Stage], epoch: int, address: str) -> None:
    await both(*(stage.wiring.join(order(epoch, route=RELAY, previous=RELAY, relay=address)) for stage in ring))


async def passes(ring: list[Stage], epoch: int) -> bool:
    """Whether a batch goes each way round."""
    for stage, following in ((ring[0], ring[1]), (ring[1], ring[0])):
        stage.wiring.send_from_engine(ring_pb2.FrameBatch(epoch=epoch, frames=[ring_pb2.Frame(session=epoch)]))
        arrived: list[Arrived] = []
        await until(lambda arrived=arrived, following=following: arrived.extend(following.taken(Arrived)) or arrived)
        if arrived[0].batch.frames[0].session != epoch:
            return False
    return True


async def both_broke(ring: list[Stage], epoch: int, within_s: float) -> None:
    async with asyncio.timeout(within_s):
        while not all(any(fault[0] == epoch for fault in stage.faults) for stage in ring):
            await asyncio.sleep(0.01)


async def test_a_killed_relay_breaks_every_lane_at_once_and_another_at_its_port_takes_the_next_epoch():
    async with pair() as ring:
        async with start_relay() as first:
            await wire_by_relay(ring, 1, first.address)
            before = await passes(ring, 1)
            os.kill(first.pid, signal.SIGKILL)
            await both_broke(ring, 1, NOTICED_S)
        async with start_relay(int(first.address.rpartition(":")[2])) as second:
            await wire_by_relay(ring, 2, second.address)

            assert before and await passes(ring, 2)
            assert [len(stage.faults) for stage in ring] == [1, 1]


async def test_a_frozen_relay_is_noticed_by_beats_and_serves_the_next_epoch_when_it_thaws():
    """Its kernel keeps every connection, so nothing else would tell."""
    async with start_relay() as running, pair() as ring:
        await wire_by_relay(ring, 1, running.address)
        before = await passes(ring, 1)
        os.kill(running.pid, signal.SIGSTOP)
        try:
            await both_broke(ring, 1, NOTICED_S)
        finally:
            os.kill(running.pid, signal.SIGCONT)
        await wire_by_relay(ring, 2, running.address)

        assert before and await passes(ring, 2)


async def test_a_direct_link_that_is_cut_for_good_leaves_the_relay_for_the_next_epoch():
    """A router that was restarted with other rules: the address refuses from now on."""
    async with relay() as relay_address, pair() as ring, start_proxy() as proxy:
        port, address = await forward(proxy, ring[1].address)
        await wire_directly(ring, address)
        before = await passes(ring, 1)
        await proxy.refuse(port)
        await proxy.cut(port)
        await both_broke(ring, 1, NOTICED_S)
        other = asyncio.ensure_future(ring[1].wiring.join(order(2, ring[0].address, timeout_s=1)))
        with pytest.raises(LinkBroken):
            await ring[0].wiring.join(order(2, address, timeout_s=1))
        await asyncio.wait({other})
        await wire_by_relay(ring, 3, relay_address)

        assert before and await passes(ring, 3)
