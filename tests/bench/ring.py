"""Rings of real stage processes to measure: pinned, wired directly, through a delaying proxy or a relay. No leader."""

import asyncio
import json
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.stage.v1 import stage_pb2 as rpc
from silentswarm.stage.v1 import stage_pb2_grpc
from swarm_core.slices import LayerRange, layer_of
from swarm_rpc.channel import dial

from tests.delaying_proxy import ProxyProcess
from tests.e2e.swarm import free_port
from tests.models import split_tensors

START_S = 120.0
CONTEXT_TOKENS = 2304
IN_FLIGHT_MAX = 16
SLEEPING_LAYERS = 32
# Prompt tokens per piece, as SWARM_SERVE_PREFILL_CHUNK is by default.
PIECE_TOKENS = 256


@dataclass(frozen=True)
class Sleep:
    """What a sleeping stage's steps take, in ms: base + rows * row, or base + positions * token."""

    base_ms: float = 0.0
    row_ms: float = 0.0
    token_ms: float = 0.0
    hidden_size: int = 576


@dataclass(frozen=True)
class RingPlan:
    """A ring to start. servable: None for sleeping stages.

    cores: the core of each stage, empty for none. cut: layers of each stage, empty for as many on each. is_variant: the
    process runs as BENCH_* in env say (variant_stage).
    """

    stages: int
    sleep: Sleep | None = None
    servable: Path | None = None
    cores: tuple[int, ...] = ()
    cut: tuple[LayerRange, ...] = ()
    threads: int = 1
    piece_tokens: int = PIECE_TOKENS
    env: dict[str, str] = field(default_factory=dict)
    is_variant: bool = False


@dataclass
class BenchStage:
    """One stage process."""

    process: asyncio.subprocess.Process
    stub: stage_pb2_grpc.StageStub
    loaded: rpc.Loaded = field(default_factory=rpc.Loaded)


class BenchRing:
    """Loaded stages. `wire` or `wire_relayed` makes the links; it may be called again."""

    def __init__(self, plan: RingPlan, stages: list[BenchStage]) -> None:
        self.plan = plan
        self.stages = stages
        self._epoch = 0

    @property
    def stub(self) -> stage_pb2_grpc.StageStub:
        """Stage 0's."""
        return self.stages[0].stub

    def port_after(self, index: int) -> int:
        """Where the stage after `index` listens."""
        return self.stages[(index + 1) % len(self.stages)].loaded.ring_port

    async def wire(self, ports: Sequence[int] | None = None) -> None:
        """Direct links; ports: where each stage dials its next, when not the stage itself (a proxy's)."""
        chosen = ports or [self.port_after(index) for index in range(len(self.stages))]
        route = stage_pb2.ROUTE_DIRECT if len(self.stages) > 1 else stage_pb2.ROUTE_LOCAL
        await self._wire(route, [[f"127.0.0.1:{port}"] for port in chosen], [""] * len(self.stages))

    async def wire_delayed(self, proxy: ProxyProcess, one_way_s: float) -> None:
        """Direct links, each through a forward of the proxy."""
        indices = range(len(self.stages))
        await self.wire([await proxy.forward("127.0.0.1", self.port_after(index), one_way_s) for index in indices])

    async def wire_relayed(self, relay_ports: Sequence[int]) -> None:
        """Every link through the relay; relay_ports: where each stage reaches it."""
        relays = [f"127.0.0.1:{port}" for port in relay_ports]
        await self._wire(stage_pb2.ROUTE_RELAY, [[] for _ in relays], relays)

    async def statuses(self) -> list[stage_pb2.StageStatus]:
        """Live figures of every stage."""
        calls = (stage.stub.GetStatus(rpc.GetStatusRequest(), timeout=10) for stage in self.stages)
        return list(await asyncio.gather(*calls))

    def generate(self, generation: generation_pb2.Generation, name: str) -> grpc.aio.UnaryStreamCall:
        """Events of one reply."""
        return self.stub.Generate(rpc.GenerateRequest(request_id=name, generation=generation), timeout=600)

    async def _wire(self, route: int, addresses: list[list[str]], relays: list[str]) -> None:
        self._epoch += 1
        orders = [
            rpc.WireRequest(
                epoch=self._epoch,
                route=route,
                previous_route=route,
                next_addresses=addresses[index],
                relay_address=relays[index],
                timeout_ms=20_000,
            )
            for index in range(len(self.stages))
        ]
        wiring = (stage.stub.Wire(order, timeout=30) for stage, order in zip(self.stages, orders, strict=True))
        for answer in await asyncio.gather(*wiring):
            assert answer.connected, answer.failure
        await self.stub.Probe(rpc.ProbeRequest(timeout_ms=20_000), timeout=30)


@asynccontextmanager
async def start_ring(plan: RingPlan) -> AsyncIterator[BenchRing]:
    """Start and load every stage; ends them with the block."""
    async with AsyncExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stages = [await _start(plan, index, scratch, stack) for index in range(plan.stages)]
        files = split_tensors(plan.servable / "base", scratch / "tensors") if plan.servable else {}
        await asyncio.gather(*(_load(plan, index, stages[index], files, scratch) for index in range(plan.stages)))
        yield BenchRing(plan, stages)


async def _start(plan: RingPlan, index: int, scratch: Path, stack: AsyncExitStack) -> BenchStage:
    socket = scratch / f"{index}.sock"
    module = "tests.bench.variant_stage" if plan.is_variant else "swarm_stage"
    command = [sys.executable, "-m", module, "serve", "--socket", str(socket)]
    if plan.sleep:
        sleep = plan.sleep
        command = [sys.executable, "-m", "tests.bench.sleeping_stage", "--socket", str(socket)]
        command += ["--base-ms", str(sleep.base_ms), "--row-ms", str(sleep.row_ms), "--token-ms", str(sleep.token_ms)]
        command += ["--hidden-size", str(sleep.hidden_size), "--layers", str(SLEEPING_LAYERS)]
    env = {**os.environ, "OMP_NUM_THREADS": str(plan.threads), "SWARM_LOG_LEVEL": "WARNING", **plan.env}
    process = await asyncio.create_subprocess_exec(
        *(pin(plan.cores[index]) if plan.cores else ()), *command, stdin=asyncio.subprocess.PIPE, env=env
    )
    stack.push_async_callback(end, process)
    channel = dial(f"unix:{socket}")
    stack.push_async_callback(channel.close)
    async with asyncio.timeout(START_S):
        await channel.channel_ready()
    return BenchStage(process, stage_pb2_grpc.StageStub(channel))


async def _load(plan: RingPlan, index: int, stage: BenchStage, files: dict[str, str], scratch: Path) -> None:
    config = json.loads((plan.servable / "config.json").read_text()) if plan.servable else {}
    layers = config.get("num_hidden_layers", SLEEPING_LAYERS)
    start, stop = layers * index // plan.stages, layers * (index + 1) // plan.stages
    if plan.cut:
        start, stop = plan.cut[index].layer_start, plan.cut[index].layer_stop
    spec = stage_pb2.StageSpec(
        model_id="bench",
        placement_id="bench",
        epoch=1,
        stage_index=index,
        stage_count=plan.stages,
        layer_start=start,
        layer_stop=stop,
        dtype="F32",
        context_tokens=CONTEXT_TOKENS,
        kv_tokens=IN_FLIGHT_MAX * CONTEXT_TOKENS,
        in_flight_max=IN_FLIGHT_MAX,
    )
    request = rpc.LoadRequest(
        spec=spec,
        model_dir=str(plan.servable or scratch),
        tensor_files=_needed(files, start, stop, layers, bool(config.get("tie_word_embeddings"))),
        device="cpu",
        threads=plan.threads,
        prefill_chunk_tokens=plan.piece_tokens,
        ring_bind_host="127.0.0.1",
    )
    async for event in stage.stub.Load(request, timeout=START_S):
        if event.WhichOneof("event") == "loaded":
            stage.loaded = event.loaded


@asynccontextmanager
async def start_relay() -> AsyncIterator[int]:
    """A relay process; gives its port."""
    port = free_port()
    env = {**os.environ, "SWARM_LEADER_HOST": "127.0.0.1", "SWARM_GRPC_PORT": str(port), "SWARM_LOG_LEVEL": "WARNING"}
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "swarm_leader", "relay", env=env)
    try:
        async with asyncio.timeout(START_S), dial(f"127.0.0.1:{port}") as channel:
            await channel.channel_ready()
        yield port
    finally:
        await end(process)


def pin(core: int) -> tuple[str, ...]:
    """What to put before a command so that it stays on one core; nothing where there is no taskset."""
    return ("taskset", "-c", str(core)) if shutil.which("taskset") else ()


async def end(process: asyncio.subprocess.Process) -> None:
    """Kill a process we started, and wait for it."""
    if process.returncode is None:
        process.kill()
    await process.wait()


def _needed(files: dict[str, str], start: int, stop: int, layers: int, is_tied: bool) -> dict[str, str]:
    """Files of the tensors a stage needs."""
    wanted = {}
    for name, path in files.items():
        layer = layer_of(name)
        is_embedding = "embed" in name
        is_end = (is_embedding and (start == 0 or (is_tied and stop == layers))) or (
            not is_embedding and stop == layers
        )
        if start <= layer < stop if layer is not None else is_end:
            wanted[name] = path
    return wanted
