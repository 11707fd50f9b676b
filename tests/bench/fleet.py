"""What a fleet costs its leader: simulated fellows with a heartbeat of 5 s, and how that grows with their number.

    .venv/bin/python -m tests.bench.fleet --counts 100,500,1000,2000 --out docs/measurements/2026-11-fleet-size.md

A real leader process, the real protocol, each fellow on a connection of its own (tests/bench/fleet_clients.py). Run it
alone on the machine: two more processes play the fellows.
"""

import argparse
import asyncio
import contextlib
import resource
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
from silentswarm.leader.v1 import fleet_pb2, fleet_pb2_grpc, status_pb2, status_pb2_grpc
from swarm_rpc.channel import dial

from tests.bench import conditions
from tests.e2e.swarm import Process, free_port, start, wait_for

HEARTBEAT_S, LEASE_S = 5.0, 15.0
CLIENT_PROCESSES = 2
SETTLE_S = 2 * HEARTBEAT_S
JOIN_S = 180.0
ASK_EVERY_S = 0.1
ASK_S = 30.0
JOIN_TOKEN = "a join token of one bench run"


@dataclass(frozen=True)
class Size:
    """What was measured with so many fellows. cpu: of one processor. Each pair is median and 99th percentile, ms."""

    count: int
    join_s: float
    cpu: float
    memory_bytes: int
    ping_ms: tuple[float, float]
    list_ms: tuple[float, float]
    ready_ms: tuple[float, float]
    connected: int

    def row(self) -> str:
        """A line of the table."""
        pairs = " | ".join(f"{half:.1f} / {most:.1f}" for half, most in (self.ping_ms, self.list_ms, self.ready_ms))
        joined = f"{self.join_s:.1f} | {1e3 * self.join_s / self.count:.1f}"
        share = f"{100 * self.cpu:.1f} % | {1e6 * self.cpu * HEARTBEAT_S / self.count:.0f}"
        memory = f"{self.memory_bytes / 2**20:.0f}"
        return f"| {self.count} | {joined} | {share} | {memory} | {pairs} | {self.connected} |"


HEAD = (
    "| fellows | all joined, s | per join, ms | leader's CPU | per heartbeat, us | memory, MiB "
    "| ping, ms | list of all, ms | ready?, ms | connected at the end |\n" + "|---" * 10 + "|"
)


async def measure(count: int, seconds: float, folder: Path) -> Size:
    """Start a leader and so many fellows, let them settle, look for `seconds`."""
    port = free_port()
    address = f"127.0.0.1:{port}"
    env = {
        "SWARM_GRPC_PORT": str(port),
        "SWARM_DATA_DIR": str(folder / "leader"),
        "SWARM_HEARTBEAT_S": str(HEARTBEAT_S),
        "SWARM_LEASE_S": str(LEASE_S),
        "SWARM_JOIN_TOKEN": JOIN_TOKEN,
        "SWARM_MIN_FREE_DISK_GB": "0",
    }
    leader = start("swarm_leader", log=folder / "leader.log", env=env)
    try:
        wait_for(lambda: " ready on " in leader.tail(), 60, "the leader")
        async with clients(address, count, folder) as joining, dial(address) as channel:
            join_s = await joining()
            await asyncio.sleep(SETTLE_S)
            process = psutil.Process(leader.pid)
            before, began_s = busy_s(process), time.monotonic()
            await asyncio.sleep(seconds)
            cpu = (busy_s(process) - before) / (time.monotonic() - began_s)
            fleet, status = fleet_pb2_grpc.FleetStub(channel), status_pb2_grpc.StatusStub(channel)
            ping = fleet_pb2.PingFellowRequest(fellow_id=f"machine-{count // 2}")
            everyone = fleet_pb2.ListFellowsRequest()
            figures = await asyncio.gather(
                ask_for(seconds, lambda: fleet.PingFellow(ping)),
                ask_for(seconds, lambda: fleet.ListFellows(everyone), every_s=1.0),
                ask_for(seconds, lambda: status.GetReady(status_pb2.GetReadyRequest())),
            )
            rows = (await fleet.ListFellows(fleet_pb2.ListFellowsRequest(), timeout=ASK_S)).fellows
            memory_bytes = process.memory_info().rss
    finally:
        leader.stop()
    connected = sum(row.state == "connected" for row in rows)
    return Size(count, join_s, cpu, memory_bytes, *figures, connected)


@contextlib.asynccontextmanager
async def clients(address: str, count: int, folder: Path) -> AsyncIterator[Callable[[], Awaitable[float]]]:
    """Processes that play the fellows; what is yielded waits until all are in, and says how long that took."""
    began_s = time.monotonic()
    share = -(-count // CLIENT_PROCESSES)
    firsts = range(0, count, share)
    playing: list[Process] = []
    for first in firsts:
        options = ("--leader", address, "--first", first, "--count", min(share, count - first))
        log = folder / f"fellows-{first}.log"
        playing.append(start("tests.bench.fleet_clients", *options, "--join-token", JOIN_TOKEN, log=log))

    async def joined() -> float:
        while not all("joined" in process.tail() for process in playing):
            assert time.monotonic() < began_s + JOIN_S, [process.tail(3) for process in playing]
            assert all(process.popen.poll() is None for process in playing), [process.tail() for process in playing]
            await asyncio.sleep(0.05)
        return time.monotonic() - began_s

    try:
        yield joined
    finally:
        for process in playing:
            process.popen.kill()
            process.popen.wait()


async def ask_for(
    seconds: float, ask: Callable[[], Awaitable[object]], every_s: float = ASK_EVERY_S
) -> tuple[float, float]:
    """Ask at an even pace; median and 99th percentile of what an answer took, ms."""
    until_s = time.monotonic() + seconds
    taken: list[float] = []
    while time.monotonic() < until_s:
        began_s = time.perf_counter()
        async with asyncio.timeout(ASK_S):
            await ask()
        taken.append((time.perf_counter() - began_s) * 1e3)
        await asyncio.sleep(every_s)
    taken.sort()
    return taken[len(taken) // 2], taken[int(len(taken) * 0.99)]


def busy_s(process: psutil.Process) -> float:
    """Processor time so far."""
    times = process.cpu_times()
    return times.user + times.system


def document(sizes: Sequence[Size], seconds: float) -> str:
    """The page of a run."""
    facts = "\n".join(f"- {line}" for line in conditions.machine())
    words = (
        f"Simulated fellows, each on a connection of its own, heartbeat {HEARTBEAT_S:g} s with telemetry, one device "
        "and one stage's status; the stage is of no placement, so each is told to end it every 10 s, and says yes.\n"
        f"The leader's CPU, of one processor, is of {seconds:g} quiet seconds. Then, for as long, a fellow is "
        "pinged through the leader and the leader is asked whether it is ready, ten times a second, and for a list of "
        "all fellows once a second: median / 99th percentile.\n`python -m tests.bench.fleet`"
    )
    table = "\n".join([HEAD, *(size.row() for size in sizes)])
    return f"# How a leader grows with its fleet\n\n{words}\n\n{table}\n\n{facts}\n- load: {conditions.load()}\n"


async def run(counts: Sequence[int], seconds: float) -> list[Size]:
    """One size after the other, each with a leader of its own."""
    sizes = []
    print(HEAD, flush=True)
    for count in counts:
        with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
            sizes.append(await measure(count, seconds, Path(folder)))
        print(sizes[-1].row(), flush=True)
    return sizes


def main() -> None:
    """Parse, measure, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--counts", default="100,500,1000,2000")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a connection is a file, here and in what is started
    sizes = asyncio.run(run([int(count) for count in options.counts.split(",")], options.seconds))
    if options.out is not None:
        options.out.write_text(document(sizes, options.seconds))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
