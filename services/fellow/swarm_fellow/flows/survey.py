"""While connected: how far the leader is, again and again, and once how fast the devices multiply. Plans nothing."""

import asyncio
import contextlib
import itertools
import statistics
from collections import deque

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from swarm_core.clock import Clock

from swarm_fellow.host.benchmark import Benchmark
from swarm_fellow.host.hardware_reader import HardwareReader

CALLS = 3  # in a row, of which the fastest counts: others waited for a processor, here or there
AT_ONCE = 5  # times after connecting, for a median at once
EVERY_S = 15.0
ANSWER_S = 5.0
KEPT = 9  # of the newest round trips, for the median: one that met a busy moment does not show


class Survey:
    """What heartbeats and registrations then say. benchmark: None measures no products."""

    def __init__(self, hardware: HardwareReader, benchmark: Benchmark | None, clock: Clock) -> None:
        self._hardware = hardware
        self._benchmark = benchmark
        self._clock = clock
        self._round_trips_ms: deque[float] = deque(maxlen=KEPT)
        self._has_measured = False

    async def run(self, channel: grpc.aio.Channel) -> None:
        """Until cancelled, at the end of the connection. A leader that does not answer leaves its figure as it was."""
        await asyncio.gather(self._measure_round_trips(channel), self._measure_products())

    async def _measure_round_trips(self, channel: grpc.aio.Channel) -> None:
        """By calls of the leader's health, which cost it nothing."""
        self._round_trips_ms.clear()  # a new connection may go another way
        check = HealthStub(channel).Check
        await self._call(check)  # the first one on a connection pays for more than the way
        for number in itertools.count(1):
            calls_ms = [await self._call(check) for _ in range(CALLS)]
            answered_ms = [call_ms for call_ms in calls_ms if call_ms is not None]
            if answered_ms:
                self._round_trips_ms.append(min(answered_ms))
                self._hardware.leader_round_trip_ms = statistics.median(self._round_trips_ms)
            if number >= AT_ONCE:
                await asyncio.sleep(EVERY_S)

    async def _call(self, check: grpc.aio.UnaryUnaryMultiCallable) -> float | None:
        """One call, in ms; None when nobody answers."""
        began_s = self._clock.monotonic_s()
        with contextlib.suppress(grpc.RpcError):
            await check(health_pb2.HealthCheckRequest(), timeout=ANSWER_S)
            return 1000 * (self._clock.monotonic_s() - began_s)
        return None

    async def _measure_products(self) -> None:
        """Once a process: what a device can does not change with the connection."""
        if self._benchmark is not None and not self._has_measured:
            self._hardware.take_products(await self._benchmark.speeds(self._hardware.seen))
            self._has_measured = True
