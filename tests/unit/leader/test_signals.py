"""Signals: whoever waits on a link hears of its end at once, and nobody else does."""

import asyncio

import pytest
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.errors import FellowLost
from swarm_leader.flows.signals import ControlLink, Signals


async def test_the_end_of_a_link_ends_the_waits_on_it_and_no_others():
    signals = Signals()
    kitchen, attic = ControlLink("f1", "kitchen"), ControlLink("f2", "attic")
    kitchen.when_ended(lambda why: signals.take_link_end(kitchen, why))
    ping = link_pb2.Signal(ping=link_pb2.PingSignal())
    on_kitchen = asyncio.create_task(signals.send(kitchen, ping, 5))
    unload = link_pb2.Signal(unload=link_pb2.UnloadSignal())
    on_attic = asyncio.create_task(signals.send(attic, unload, 5))
    asked = (await attic.next()).signal

    kitchen.end(FellowLost("connection reset"))

    with pytest.raises(FellowLost, match="fellow kitchen was lost during ping: connection reset"):
        await on_kitchen
    signals.take_result(attic, link_pb2.SignalResult(signal_id=asked.signal_id))
    assert (await on_attic).signal_id == asked.signal_id
