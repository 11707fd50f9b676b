"""Many fellows in one process: the real FellowLink, each on a connection of its own. They hold no model.

    python -m tests.bench.fleet_clients --leader HOST:PORT --first 0 --count 500

Each registers, takes its credential, and sends a heartbeat as often as the leader asks, with telemetry and one stage's
status; each answers what it is told. Prints "joined N" once all are in.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
from collections.abc import AsyncIterator
from typing import Any

import grpc
from silentswarm.core.v1 import hardware_pb2, stage_pb2, telemetry_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2
from silentswarm.fellow.v1 import fellow_link_pb2_grpc
from swarm_rpc.limits import CHANNEL_OPTIONS

from tests.integration.leader.scripted_fellow import declare

JOINING_MAX = 32  # at once; the leader takes 256
# As in two processes: otherwise all channels of a process to one address are one connection.
OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)


class FleetFellow:
    """One simulated machine."""

    def __init__(self, number: int, join_token: str) -> None:
        self._number = number
        self._join_token = join_token
        self._up: asyncio.Queue[link_pb2.ConnectRequest] = asyncio.Queue()
        self._sequences = itertools.count(1)
        self.registered: asyncio.Future[link_pb2.Registered] = asyncio.get_running_loop().create_future()
        self._spec = stage_pb2.StageSpec(placement_id=f"of {number}", model_id="bench/model", stage_count=8, epoch=1)

    async def live(self, address: str) -> None:
        """Until the connection ends. Raises what keeps it out."""
        async with grpc.aio.insecure_channel(address, options=(*CHANNEL_OPTIONS, OWN_CONNECTION)) as channel:
            self._up.put_nowait(link_pb2.ConnectRequest(register=self._register()))
            beating: asyncio.Task[None] | None = None
            try:
                async for answer in fellow_link_pb2_grpc.FellowLinkStub(channel).Connect(self._drain()):
                    if answer.WhichOneof("body") == "registered":
                        self.registered.set_result(answer.registered)
                        beating = asyncio.create_task(self._beat(answer.registered.heartbeat_ms / 1000))
                    else:
                        self._obey(answer.signal)
            finally:
                if beating is not None:
                    beating.cancel()

    async def _drain(self) -> AsyncIterator[link_pb2.ConnectRequest]:
        while True:
            yield await self._up.get()

    def _register(self) -> link_pb2.Register:
        hardware = hardware_pb2.Hardware(hostname=f"machine-{self._number}", devices=[self._device()])
        return link_pb2.Register(
            identity=f"bench identity {self._number}",
            name=f"machine-{self._number}",
            join_token=self._join_token,
            hardware=hardware,
            capabilities=declare(),
            version="0.1.0",
            process_nonce=f"nonce {self._number}",
        )

    def _device(self) -> hardware_pb2.Device:
        return hardware_pb2.Device(
            kind="cuda",
            name="simulated",
            memory_total_bytes=8 * 10**9,
            memory_free_bytes=4 * 10**9 + self._number,
            compute_capability="8.6",
            compute_dtype="F16",
            read_bytes_per_s=3e11,
        )

    async def _beat(self, every_s: float) -> None:
        await asyncio.sleep(random.random() * every_s)  # machines are not in step
        while True:
            beat = link_pb2.Heartbeat(
                sequence=next(self._sequences),
                devices=[self._device()],
                stages=[self._status()],
                telemetry=self._telemetry(),
            )
            self._up.put_nowait(link_pb2.ConnectRequest(heartbeat=beat))
            await asyncio.sleep(every_s)

    def _status(self) -> stage_pb2.StageStatus:
        return stage_pb2.StageStatus(
            spec=self._spec,
            sessions=3,
            kv_tokens_used=random.randrange(4096),
            kv_tokens_max=8192,
            memory_bytes=2 * 10**9,
            loaded_s=100.0,
            busy_s=random.random() * 100,
        )

    def _telemetry(self) -> telemetry_pb2.NodeTelemetry:
        device = telemetry_pb2.DeviceTelemetry(busy_share=random.random(), temperature_c=60.0, power_w=120.0)
        return telemetry_pb2.NodeTelemetry(
            devices=[device],
            leader_round_trip_ms=10 + random.random(),
            out_of_memory_count=0,
            error_count=0,
            stage_crash_count=0,
            restart_count=0,
            cpu_busy_share=random.random(),
            memory_free_bytes=8 * 10**9,
            disk_free_bytes=10**11,
            sent_bytes=10**6,
            received_bytes=10**6,
        )

    def _obey(self, signal: link_pb2.Signal) -> None:
        result = link_pb2.SignalResult(signal_id=signal.signal_id)
        result.acknowledged.SetInParent()
        self._up.put_nowait(link_pb2.ConnectRequest(result=result))


async def live_all(leader: str, first: int, count: int, join_token: str) -> None:
    """Join, a few at a time, say so, and stay."""
    gate = asyncio.Semaphore(JOINING_MAX)
    fellows = [FleetFellow(number, join_token) for number in range(first, first + count)]
    lives: list[asyncio.Task[Any]] = []

    async def join(fellow: FleetFellow) -> None:
        async with gate:
            life = asyncio.create_task(fellow.live(leader))
            lives.append(life)
            await asyncio.wait({life, fellow.registered}, return_when=asyncio.FIRST_COMPLETED)
            if not fellow.registered.done():
                life.result()

    await asyncio.gather(*map(join, fellows))
    print(f"joined {count}", flush=True)
    await asyncio.wait(lives, return_when=asyncio.FIRST_COMPLETED)
    ended = [life for life in lives if life.done()]
    print(f"{len(ended)} left: {ended[0].exception()}", flush=True)


def main() -> None:
    """Parse and live until stdin or this process ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leader", required=True)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--join-token", default="")
    options = parser.parse_args()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(live_all(options.leader, options.first, options.count, options.join_token))


if __name__ == "__main__":
    main()
