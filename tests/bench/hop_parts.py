"""What one message from process to process costs, way by way: where a hop's time goes. For information, no target.

    python -m tests.bench.hop_parts [--rounds 2000]

Two processes send a frame of SmolLM2's size (2.3 KB) to and fro. Half a round trip is one hop; the processor time is
that of one side per message sent and received. uvloop is measured where it is installed.
"""

import argparse
import asyncio
import contextlib
import importlib.util
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
from silentswarm.core.v1 import tensor_pb2
from silentswarm.relay.v1 import relay_pb2, relay_pb2_grpc
from silentswarm.ring.v1 import ring_pb2
from swarm_stage.engine.inbox import Inbox

HIDDEN = 576
Result = tuple[float, float]  # median us a hop, us of processor a message
WAYS = ("socket", "streams", "grpc-aio", "grpc-aio-uvloop", "grpc-threads")


def frame_batch() -> ring_pb2.FrameBatch:
    """One decode step of one session, as stage 0 sends it."""
    tensor = tensor_pb2.Tensor(dtype="F32", shape=[1, HIDDEN], data=bytes(4 * HIDDEN))
    frame = ring_pb2.Frame(session=1, pos=100, hidden=ring_pb2.Hidden(hidden=tensor, sample=True))
    frame.traces.add(stage_index=0, compute_us=30_000)
    return ring_pb2.FrameBatch(epoch=1, frames=[frame])


PAYLOAD = frame_batch().SerializeToString()


def timed(rounds: int, round_trip: Callable[[], object]) -> Result:
    """Median of half round trips, and processor time a message."""
    taken = []
    cpu_s = time.process_time()
    for _ in range(rounds):
        started_s = time.perf_counter()
        round_trip()
        taken.append(time.perf_counter() - started_s)
    return statistics.median(taken) / 2 * 1e6, (time.process_time() - cpu_s) / rounds * 1e6


async def timed_async(rounds: int, round_trip: Callable[[], object]) -> Result:
    """As timed, on an event loop."""
    taken = []
    cpu_s = time.process_time()
    for _ in range(rounds):
        started_s = time.perf_counter()
        await round_trip()  # type: ignore[misc]
        taken.append(time.perf_counter() - started_s)
    return statistics.median(taken) / 2 * 1e6, (time.process_time() - cpu_s) / rounds * 1e6


# What happens inside one process.


def serialise(rounds: int) -> Result:
    """A batch to bytes and back; a hop does each once, so this is not halved."""
    batch = frame_batch()
    half_us, cpu_us = timed(rounds, lambda: ring_pb2.FrameBatch.FromString(batch.SerializeToString()))
    return half_us * 2, cpu_us


def thread_wake(rounds: int) -> Result:
    """From an engine thread to the event loop and back through its inbox."""

    async def run() -> Result:
        loop = asyncio.get_running_loop()
        inbox = Inbox(loop)
        results: list[Result] = []

        def engine() -> None:
            def round_trip() -> None:
                loop.call_soon_threadsafe(inbox.put_now, 1)
                inbox.take(None)

            results.append(timed(rounds, round_trip))

        thread = threading.Thread(target=engine)
        thread.start()
        await asyncio.to_thread(thread.join)
        return results[0]

    return asyncio.run(run())


# Both sides of each way.


def echo_socket(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while data := line.recv(2**16):
            line.sendall(data)


def ask_socket(rounds: int, start_peer: Callable[[int], None]) -> Result:
    with socket.create_server(("127.0.0.1", 0)) as server:
        start_peer(server.getsockname()[1])
        line, _ = server.accept()
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

        def round_trip() -> None:
            line.sendall(PAYLOAD)
            left = len(PAYLOAD)
            while left:
                left -= len(line.recv(2**16))

        with line:
            return timed(rounds, round_trip)


async def echo_streams(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while data := await reader.read(2**16):
        writer.write(data)


async def ask_streams(rounds: int, start_peer: Callable[[int], None]) -> Result:
    result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def round_trip() -> None:
            writer.write(PAYLOAD)
            await reader.readexactly(len(PAYLOAD))

        result.set_result(await timed_async(rounds, round_trip))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        start_peer(server.sockets[0].getsockname()[1])
        return await result


class AioEcho(relay_pb2_grpc.RelayServicer):
    """Sends back what comes."""

    async def Attach(
        self, requests: AsyncIterator[relay_pb2.AttachRequest], context: grpc.aio.ServicerContext
    ) -> AsyncIterator[relay_pb2.AttachResponse]:
        async for request in requests:
            yield relay_pb2.AttachResponse(payload=request.payload)


class ThreadEcho(relay_pb2_grpc.RelayServicer):
    """The same, on threads."""

    def Attach(
        self, requests: Iterator[relay_pb2.AttachRequest], context: grpc.ServicerContext
    ) -> Iterator[relay_pb2.AttachResponse]:
        for request in requests:
            yield relay_pb2.AttachResponse(payload=request.payload)


async def echo_grpc_aio(port: int) -> None:
    server = grpc.aio.server()
    relay_pb2_grpc.add_RelayServicer_to_server(AioEcho(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


async def ask_grpc_aio(rounds: int, start_peer: Callable[[int], None]) -> Result:
    port = free_port()
    start_peer(port)
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        call = relay_pb2_grpc.RelayStub(channel).Attach(wait_for_ready=True)
        request = relay_pb2.AttachRequest(payload=PAYLOAD)

        async def round_trip() -> None:
            await call.write(request)
            await call.read()

        await round_trip()
        return await timed_async(rounds, round_trip)


def echo_grpc_threads(port: int) -> None:
    server = grpc.server(ThreadPoolExecutor(4))
    relay_pb2_grpc.add_RelayServicer_to_server(ThreadEcho(), server)
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def ask_grpc_threads(rounds: int, start_peer: Callable[[int], None]) -> Result:
    port = free_port()
    start_peer(port)
    gate = threading.Semaphore(0)
    request = relay_pb2.AttachRequest(payload=PAYLOAD)

    def requests() -> Iterator[relay_pb2.AttachRequest]:
        while gate.acquire():
            yield request

    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        answers = relay_pb2_grpc.RelayStub(channel).Attach(requests(), wait_for_ready=True)

        def round_trip() -> None:
            gate.release()
            next(answers)

        round_trip()
        return timed(rounds, round_trip)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def run_loop(way: str, work: Callable[[], object]) -> object:
    """On asyncio's loop, or uvloop's."""
    if not way.endswith("uvloop"):
        return asyncio.run(work())  # type: ignore[arg-type]
    with asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop) as runner:
        return runner.run(work())  # type: ignore[arg-type]


def measure(way: str, rounds: int) -> Result:
    """One way, with the peer in a process of its own."""
    peers: list[subprocess.Popen[bytes]] = []

    def start_peer(port: int) -> None:
        command = [sys.executable, "-m", "tests.bench.hop_parts", "--echo", way, "--port", str(port)]
        peers.append(subprocess.Popen(command))

    try:
        if way == "socket":
            return ask_socket(rounds, start_peer)
        if way == "grpc-threads":
            return ask_grpc_threads(rounds, start_peer)
        ask = ask_streams if way == "streams" else ask_grpc_aio
        return run_loop(way, lambda: ask(rounds, start_peer))  # type: ignore[return-value]
    finally:
        for peer in peers:
            peer.kill()
            peer.wait()


def echo(way: str, port: int) -> None:
    """Be the peer, until killed."""
    with contextlib.suppress(ConnectionError):
        if way == "socket":
            echo_socket(port)
        elif way == "grpc-threads":
            echo_grpc_threads(port)
        else:
            run_loop(way, lambda: (echo_streams if way == "streams" else echo_grpc_aio)(port))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=2000)
    parser.add_argument("--echo", choices=WAYS)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.echo:
        echo(options.echo, options.port)
        return
    for name, part in (("frame batch to bytes and back", serialise), ("engine thread to loop or back", thread_wake)):
        took_us, cpu_us = part(options.rounds)
        print(f"{name:32} {took_us:7.0f} us, processor {cpu_us:6.0f} us", flush=True)
    ways = [way for way in WAYS if not way.endswith("uvloop") or importlib.util.find_spec("uvloop")]
    for way in ways:
        runs = [measure(way, options.rounds) for _ in range(3)]
        took_us, cpu_us = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"{'a hop over ' + way:32} {took_us:7.0f} us, processor {cpu_us:6.0f} us", flush=True)


if __name__ == "__main__":
    main()
