"""`python -m tests.bench.link_encryption`: a link between two stage processes, plaintext and mutual TLS in turn.

One process holds stage 0 of a ring of two, another one stage 1, which sends back what arrives. A lap is twice the way
of a frame; the engine threads are stood in for by a loop that takes and sends. Alternating pairs; medians over all.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from silentswarm.core.v1 import stage_pb2, tensor_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_stage.engine.engine import Arrived
from swarm_stage.ring.wiring import WireOrder

from tests.bench import conditions
from tests.integration.rpc.tls_peers import make_authority
from tests.integration.trust.linked_stages import LinkedStage, keys_of, open_certificates, write_certificates

# What a frame carries: one decode step of SmolLM2 and of an 8,192-wide model in F16, a prompt piece of 256 tokens.
SIZES_BYTES = {"decode 2 KiB": 2_304, "decode 16 KiB": 16_384, "piece 4 MiB": 4 * 2**20}
LAPS = {"decode 2 KiB": 400, "decode 16 KiB": 400, "piece 4 MiB": 30}


def batch_of(size_bytes: int) -> ring_pb2.FrameBatch:
    """One frame of one session."""
    hidden = ring_pb2.Hidden(hidden=tensor_pb2.Tensor(data=bytes(size_bytes)))
    return ring_pb2.FrameBatch(epoch=1, frames=[ring_pb2.Frame(session=1, hidden=hidden)])


async def join(index: int, folder: str, own: LinkedStage, next_address: str, has_tls: bool) -> None:
    """Epoch 1, direct both ways."""
    route = stage_pb2.ROUTE_DIRECT
    await own.wiring.join(WireOrder(1, route, route, (next_address,), "", 10, keys=keys_of(index, 2, has_tls)))


async def echo(folder: str) -> None:
    """The other process: stage 1. Tells its address, reads that of stage 0, then sends back whatever arrives."""
    stage = LinkedStage(1, 2, open_certificates(folder))
    await stage.server.start()
    print(stage.address, flush=True)
    address = (await asyncio.to_thread(sys.stdin.readline)).strip()
    await join(1, folder, stage, address, bool(folder))
    print("joined", flush=True)

    def turn() -> None:
        while True:
            for item in stage.inbox.take(None):
                if isinstance(item, Arrived):
                    stage.wiring.send_from_engine(item.batch)

    await asyncio.to_thread(turn)


async def measure(tls_dirs: list[str], name: str) -> list[float]:
    """Seconds of each lap."""
    command = [sys.executable, "-m", "tests.bench.link_encryption", "--echo", tls_dirs[1]]
    other = await asyncio.create_subprocess_exec(*command, stdin=-1, stdout=-1)
    assert other.stdin and other.stdout
    stage = LinkedStage(0, 2, open_certificates(tls_dirs[0]))
    try:
        await stage.server.start()
        address = (await other.stdout.readline()).decode().strip()
        other.stdin.write(f"{stage.address}\n".encode())
        await other.stdin.drain()
        await join(0, tls_dirs[0], stage, address, bool(tls_dirs[0]))
        await other.stdout.readline()

        def laps() -> list[float]:
            took = []
            for _ in range(LAPS[name]):
                began_s = time.perf_counter()
                stage.wiring.send_from_engine(batch_of(SIZES_BYTES[name]))
                while not any(isinstance(item, Arrived) for item in stage.inbox.take(5)):
                    pass
                took.append(time.perf_counter() - began_s)
            return took[len(took) // 10 :]

        return await asyncio.to_thread(laps)
    finally:
        other.kill()
        await other.wait()
        await stage.wiring.close()
        await stage.server.stop(0)


async def compare(pairs: int) -> None:
    """Print a table."""
    with tempfile.TemporaryDirectory() as scratch:
        authority = make_authority(Path(scratch) / "authority")
        folders = [write_certificates(authority, Path(scratch) / f"f{index}", f"f{index}") for index in range(2)]
        print("\n".join(conditions.machine()), f"load before: {conditions.load()}", sep="\n")
        print("| frame | plaintext, ms a lap | mutual TLS, ms a lap | ratio |\n|---|---|---|---|")
        for name in SIZES_BYTES:
            plain, encrypted = [], []
            for _ in range(pairs):
                plain.append(statistics.median(await measure(["", ""], name)) * 1e3)
                encrypted.append(statistics.median(await measure(folders, name)) * 1e3)
            ratio = statistics.median(after / before for before, after in zip(plain, encrypted, strict=True))
            print(f"| {name} | {spread(plain)} | {spread(encrypted)} | {ratio:.2f} |", flush=True)
        print(f"load after: {conditions.load()}")


def spread(values: list[float]) -> str:
    """Median, and least to most."""
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--echo", default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    asyncio.run(compare(options.pairs) if options.echo is None else echo(options.echo))
