"""Real stage processes of one small model, wired as a leader would. No leader, no fellow."""

import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import grpc
from silentswarm.core.v1 import generation_pb2, stage_pb2, weights_pb2
from silentswarm.relay.v1 import relay_pb2_grpc
from silentswarm.stage.v1 import stage_pb2 as rpc
from silentswarm.stage.v1 import stage_pb2_grpc
from swarm_core.slices import layer_of
from swarm_leader.relay.servicer import RelayServicer
from swarm_rpc.channel import dial
from swarm_rpc.limits import FRAME_BYTES_MAX
from swarm_rpc.server import listen, make_server
from swarm_stage.model.holding import AdapterSource

from tests.integration.ring.nursery import Stage, start_stage
from tests.models import split_tensors

START_S = 60.0
CONTEXT_TOKENS = 512
_USES = {
    "chosen": weights_pb2.ADAPTER_USE_CHOSEN,
    "always": weights_pb2.ADAPTER_USE_ALWAYS,
    "merged": weights_pb2.ADAPTER_USE_MERGED,
}


@dataclass
class RunningStage:
    """One stage process and how to talk to it."""

    process: asyncio.subprocess.Process | Stage
    stub: stage_pb2_grpc.StageStub
    socket: Path
    loaded: rpc.Loaded = field(default_factory=rpc.Loaded)


class StageRing:
    """N stage processes, loaded. `async with` ends them by id.

    relay_address: of a relay that runs already; else one runs in this process. program: a module that serves a stage,
    with its options. is_forked: by this process's nursery, without the 4 s of imports; else as a fellow does.
    codecs: first layer behind a boundary -> how it is coded, on the link where the model is cut there and in place
    elsewhere. adapters: beside every stage's weights; lora: how each stage computes them. spec: fields of StageSpec
    other than the usual ones. chunk holds from the next load on.
    """

    def __init__(
        self,
        model_dir: Path,
        scratch: Path,
        stages: int,
        chunk: int = 256,
        placement: str = "ring",
        *,
        relay_address: str = "",
        program: Sequence[str] = ("swarm_stage", "serve"),
        is_forked: bool = True,
        codecs: Mapping[int, str] = {},
        adapters: Sequence[AdapterSource] = (),
        lora: Sequence[str] = (),
        **spec: int | str,
    ) -> None:
        self.stages: list[RunningStage] = []
        self.relay_address = relay_address
        self.epoch = 0
        self.chunk = chunk
        self._program = program
        self._is_forked = is_forked
        self._codecs = codecs
        self._adapters = adapters
        self._lora = lora or [""] * stages
        self._sizes = {"context_tokens": CONTEXT_TOKENS, "kv_tokens": 4 * CONTEXT_TOKENS, "in_flight_max": 8, **spec}
        self._model_dir = model_dir
        self._scratch = scratch
        self._count = stages
        self._placement = placement
        self._files: dict[str, str] = {}
        self._spares: list[RunningStage] = []
        self._started = 0
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "StageRing":
        try:
            return await self._begin()
        except BaseException:
            await self.__aexit__()  # nothing else ends stages that started when a later one did not
            raise

    async def _begin(self) -> "StageRing":
        self._files = split_tensors(self._model_dir, self._scratch / "tensors")
        if not self.relay_address:
            relay = make_server(FRAME_BYTES_MAX + 2**16)
            relay_pb2_grpc.add_RelayServicer_to_server(RelayServicer(), relay)
            self.relay_address = f"127.0.0.1:{listen(relay, '127.0.0.1:0')}"
            await relay.start()
            self._stack.push_async_callback(relay.stop, 0)
        for started in [asyncio.create_task(self._start(index)) for index in range(self._count)]:
            self.stages.append(await started)
        await asyncio.gather(*(self._load(index, self.stages[index]) for index in range(self._count)))
        return self

    async def __aexit__(self, *failure: object) -> None:
        for stage in [*self.stages, *self._spares]:
            if stage.process.returncode is None:
                stage.process.kill()
            await stage.process.wait()
        await self._stack.aclose()

    async def spare(self, index: int) -> RunningStage:
        """Start and load a second process for a stage, for replace."""
        spare = await self._start(index)
        self._spares.append(spare)
        await self._load(index, spare)
        return spare

    async def replace(self, index: int, spare: RunningStage | None = None) -> None:
        """Let another process be a stage whose process has ended; the others stay, unwired until the next epoch.

        spare: loaded before; None starts and loads one.
        """
        await self.stages[index].process.wait()
        self.stages[index] = spare or await self.spare(index)

    async def wire(
        self, route: stage_pb2.Route, kv_tokens: int | None = None, keeps: bool = False, fresh: Sequence[int] = ()
    ) -> list[rpc.WireResponse]:
        """Join the next epoch on every stage at once. kv_tokens: the least that any stage measured; None is untold.

        keeps: sessions are kept. fresh: stages that hold nothing of an older epoch.
        """
        self.epoch += 1
        if self._count == 1:
            route = stage_pb2.ROUTE_LOCAL
        orders = [
            rpc.WireRequest(
                epoch=self.epoch,
                route=route,
                previous_route=route,
                next_addresses=[f"127.0.0.1:{self.stages[(index + 1) % self._count].loaded.ring_port}"],
                relay_address=self.relay_address,
                timeout_ms=10_000,
                kv_tokens=kv_tokens,
                keep_sessions=keeps,
                fresh_stages=fresh,
            )
            for index in range(self._count)
        ]
        wiring = (stage.stub.Wire(order, timeout=30) for stage, order in zip(self.stages, orders, strict=True))
        return list(await asyncio.gather(*wiring))

    async def probe(self) -> rpc.ProbeResponse:
        """One lap from stage 0."""
        return await self.stages[0].stub.Probe(rpc.ProbeRequest(timeout_ms=20_000), timeout=30)

    def generate(self, generation: generation_pb2.Generation, name: str = "r") -> grpc.aio.UnaryStreamCall:
        """Events of one reply."""
        return self.stages[0].stub.Generate(rpc.GenerateRequest(request_id=name, generation=generation), timeout=60)

    async def greedy(self, prompt: list[int], new_tokens: int, name: str = "r") -> list[int]:
        """Ids of one greedy reply."""
        events = [event async for event in self.generate(greedy(prompt, new_tokens), name)]
        assert events[-1].WhichOneof("event") == "done", events[-1]
        return [token for event in events for token in event.tokens.ids]

    async def status(self, index: int) -> stage_pb2.StageStatus:
        """Live figures of one stage."""
        return await self.stages[index].stub.GetStatus(rpc.GetStatusRequest(), timeout=10)

    async def _start(self, index: int) -> RunningStage:
        self._started += 1
        socket = self._scratch / f"{index}-{self._started}.sock"
        program = (*self._program, "--socket", str(socket))
        environ = {**os.environ, "OMP_NUM_THREADS": "1", "SWARM_LOG_LEVEL": "WARNING"}
        process: asyncio.subprocess.Process | Stage
        if self._is_forked:
            process = start_stage(program, environ)
        else:
            command = (sys.executable, "-m", *program)
            process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, env=environ)
        channel = dial(f"unix:{socket}")
        self._stack.push_async_callback(channel.close)
        async with asyncio.timeout(START_S):
            await channel.channel_ready()
        return RunningStage(process, stage_pb2_grpc.StageStub(channel), socket)

    async def _load(self, index: int, stage: RunningStage) -> None:
        config = json.loads((self._model_dir / "config.json").read_text())
        layers = config["num_hidden_layers"]
        start, stop = layers * index // self._count, layers * (index + 1) // self._count
        spec = stage_pb2.StageSpec(
            model_id="tiny",
            placement_id=self._placement,
            epoch=1,
            stage_index=index,
            stage_count=self._count,
            layer_start=start,
            layer_stop=stop,
            dtype="F32",
            codec_in=self._codecs.get(start, ""),
            codec_out=self._codecs.get(stop, ""),
            inner_codecs=[
                weights_pb2.InnerCodec(layer=layer, codec=codec)
                for layer, codec in self._codecs.items()
                if start < layer < stop
            ],
            adapters=[
                weights_pb2.AdapterRef(model_id=adapter.model_id, use=_USES[adapter.use]) for adapter in self._adapters
            ],
            **self._sizes,
        )
        request = rpc.LoadRequest(
            spec=spec,
            model_dir=str(self._model_dir),
            tensor_files=_slice_files(self._files, start, stop, layers, bool(config.get("tie_word_embeddings"))),
            device="cpu",
            threads=1,
            prefill_chunk_tokens=self.chunk,
            ring_bind_host="127.0.0.1",
            adapters=[_adapter_files(adapter, start, stop) for adapter in self._adapters],
            lora=self._lora[index],
            tape_bytes_max=2**24,
        )
        async for event in stage.stub.Load(request, timeout=START_S):
            if event.WhichOneof("event") == "loaded":
                stage.loaded = event.loaded


def greedy(prompt: list[int], new_tokens: int) -> generation_pb2.Generation:
    """A greedy generation of token ids, to its full length."""
    return generation_pb2.Generation(
        prompt_ids=generation_pb2.TokenIds(ids=prompt),
        sampling=generation_pb2.Sampling(temperature=0),
        new_tokens_max=new_tokens,
        ignore_eos=True,
    )


def _adapter_files(adapter: AdapterSource, start: int, stop: int) -> rpc.AdapterFiles:
    """An adapter's files that a stage needs."""
    files = {name: str(path) for name, path in adapter.tensor_files.items() if start <= (layer_of(name) or 0) < stop}
    return rpc.AdapterFiles(model_id=adapter.model_id, model_dir=str(adapter.model_dir), tensor_files=files)


def _slice_files(files: dict[str, str], start: int, stop: int, layers: int, is_tied: bool) -> dict[str, str]:
    """Files of the tensors a stage needs."""
    wanted = {}
    for name, path in files.items():
        layer = layer_of(name)
        is_end = (start == 0 and "embed" in name) or (stop == layers and "embed" not in name)
        is_tied_head = is_tied and stop == layers and "embed" in name
        if (layer is not None and start <= layer < stop) or (layer is None and (is_end or is_tied_head)):
            wanted[name] = path
    return wanted
