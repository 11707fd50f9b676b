"""Signals: what is told of their progress, and when."""

import asyncio

from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from swarm_core.clock import ManualClock
from swarm_fellow.flows.signals import SignalRunner


class ReportingLoader:
    """A loader that reports four times within 0.6 s."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    async def load(self, signal, progress) -> link_pb2.LoadDone:
        progress("fetch", 1, 10)
        progress("fetch", 2, 10)
        self._clock.advance(0.6)
        progress("fetch", 3, 10)
        progress("start", 0, 1)
        return link_pb2.LoadDone()


async def test_a_step_is_told_at_once_and_then_every_half_second():
    clock = ManualClock(monotonic_s=77.0)
    sent: asyncio.Queue[link_pb2.ConnectRequest] = asyncio.Queue()
    signals = SignalRunner(
        None, ReportingLoader(clock), None, None, clock, "relay:1", lambda message: sent.put_nowait(message) or True
    )
    signals.start(link_pb2.Signal(signal_id=1, load=link_pb2.LoadSignal()))
    told = [await asyncio.wait_for(sent.get(), 5) for _ in range(4)]
    await signals.close()

    assert [(m.progress.step, m.progress.done) for m in told[:3]] == [("fetch", 1), ("fetch", 3), ("start", 0)]
    assert told[3].result.signal_id == 1 and sent.empty()
