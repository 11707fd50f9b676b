"""A leader that does what a test says: a real gRPC server of the fellow's contracts, over a small made-up model."""

import asyncio
import contextlib
import hashlib
import itertools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import grpc
from silentswarm.core.v1 import generation_pb2, stage_pb2
from silentswarm.fellow.v1 import (
    fellow_link_pb2,
    fellow_link_pb2_grpc,
    inference_link_pb2,
    inference_link_pb2_grpc,
    logs_pb2,
    logs_pb2_grpc,
    transfer_pb2,
    transfer_pb2_grpc,
)
from swarm_core.errors import Conflict, LinkBroken, ModelNotFound
from swarm_core.manifest import FileEntry, Manifest, TensorEntry, manifest_sha256, manifest_to_json
from swarm_core.servable_parts import AdapterOf
from swarm_rpc.server import add_health_and_reflection, announce, listen, make_server

CHUNK_BYTES = 4096
WAIT_S = 20.0


async def eventually(holds: Callable[[], object], what: str, within_s: float = WAIT_S) -> None:
    """Wait until something holds; fails with `what` when it does not in time."""
    deadline_s = asyncio.get_running_loop().time() + within_s
    while not holds():
        assert asyncio.get_running_loop().time() < deadline_s, f"in {within_s:g} s it never happened that {what}"
        await asyncio.sleep(0.01)


@dataclass
class TinyModel:
    """A model of made-up bytes: four layers of two tensors (one of them equal everywhere), embeddings, norm, head."""

    model_id: str = "tiny/one"
    tensors: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = ["model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"]
        names += [f"model.layers.{layer}.mlp.weight" for layer in range(4)]
        for name in names:
            seed = hashlib.sha256((self.model_id + name).encode()).digest()
            self.tensors[name] = seed * 512
        for layer in range(4):
            self.tensors[f"model.layers.{layer}.norm.weight"] = b"\x00\x00\x80\x3f" * 256
        self.files = {"config.json": b'{"a": 1, "b": 2}', "tokenizer/tokenizer.json": b'{"v": []}' * 100}

    @property
    def manifest_json(self) -> bytes:
        """Its servable.json."""
        return manifest_to_json(self.manifest)

    @property
    def manifest(self) -> Manifest:
        """What it is made of."""
        tensors = {
            name: TensorEntry("base/w.safetensors", 0, len(raw), "F32", (len(raw) // 4,), hash_of(raw))
            for name, raw in self.tensors.items()
        }
        files = {name: FileEntry(len(raw), hash_of(raw)) for name, raw in self.files.items()}
        return Manifest(self.model_id, "llama", 4, 64, 64, 1, 64, False, 512, tensors, files)

    @property
    def sha256(self) -> str:
        """What names its manifest."""
        return manifest_sha256(self.manifest_json)

    def spec(self, placement_id: str, **changes) -> stage_pb2.StageSpec:
        """A stage of it: layers 0 and 1 of a ring of two, unless changed."""
        about = dict(stage_index=0, stage_count=2, layer_start=0, layer_stop=2, epoch=1, context_tokens=512)
        about |= dict(model_id=self.model_id, manifest_sha256=manifest_sha256(self.manifest_json))
        return stage_pb2.StageSpec(placement_id=placement_id, **(about | changes))

    def slice_bytes(self, layer_start: int, layer_stop: int) -> int:
        """Different bytes a stage of these layers needs, small files included."""
        names = [f"model.layers.{n}.{part}.weight" for n in range(layer_start, layer_stop) for part in ("mlp", "norm")]
        names += ["model.embed_tokens.weight"] if layer_start == 0 else []
        names += ["model.norm.weight", "lm_head.weight"] if layer_stop == 4 else []
        return sum(map(len, {*(self.tensors[name] for name in names), *self.files.values()}))


@dataclass
class TinyAdapter(TinyModel):
    """An adapter of a TinyModel: A and B of one module a layer."""

    model_id: str = "tiny/adapter"
    base: TinyModel = field(default_factory=TinyModel)

    def __post_init__(self) -> None:
        for layer in range(4):
            for half in "AB":
                name = f"model.layers.{layer}.self_attn.q_proj.lora_{half}.weight"
                self.tensors[name] = hashlib.sha256((self.model_id + name).encode()).digest() * 64
        self.files = {"adapter_config.json": b'{"r": 2, "lora_alpha": 4}'}

    @property
    def manifest(self) -> Manifest:
        """As a whole model's, but for what it is of and that its tensors have two dimensions."""
        whole = super().manifest
        shaped = {
            name: replace(entry, shape=(2, 256) if "lora_A" in name else (256, 2))
            for name, entry in whole.tensors.items()
        }
        return replace(whole, tensors=shaped, adapter=AdapterOf(self.base.model_id, 2, ("q_proj",), 2.0))

    def slice_bytes(self, layer_start: int, layer_stop: int) -> int:
        """Different bytes of these layers, small files included."""
        own = [raw for name, raw in self.tensors.items() if layer_start <= int(name.split(".")[2]) < layer_stop]
        return sum(map(len, {*own, *self.files.values()}))


class FellowConnection:
    """One registered fellow, as the leader sees it."""

    def __init__(self, register: fellow_link_pb2.Register) -> None:
        self.register = register
        self.heartbeats: list[fellow_link_pb2.Heartbeat] = []
        self.events: list[fellow_link_pb2.StageEvent] = []
        self.progress: list[fellow_link_pb2.SignalProgress] = []
        self.results: dict[int, list[fellow_link_pb2.SignalResult]] = {}
        self.down: asyncio.Queue = asyncio.Queue()
        self._ids = itertools.count(1)

    def send(self, timeout_s: float = WAIT_S, **kind) -> int:
        """Send a signal; returns its id."""
        signal_id = next(self._ids)
        signal = fellow_link_pb2.Signal(signal_id=signal_id, timeout_ms=int(timeout_s * 1000), **kind)
        self.down.put_nowait(fellow_link_pb2.ConnectResponse(signal=signal))
        return signal_id

    async def result(self, signal_id: int) -> fellow_link_pb2.SignalResult:
        """The result of a signal."""
        await eventually(lambda: signal_id in self.results, f"signal {signal_id} was answered", WAIT_S + 5)
        return self.results[signal_id][0]

    async def ask(self, timeout_s: float = WAIT_S, **kind) -> fellow_link_pb2.SignalResult:
        """Send a signal and wait for its result."""
        return await self.result(self.send(timeout_s, **kind))

    async def load(self, spec: stage_pb2.StageSpec, **options) -> fellow_link_pb2.LoadDone:
        """LOAD that must work."""
        result = await self.ask(load=fellow_link_pb2.LoadSignal(spec=spec, **options))
        assert result.WhichOneof("outcome") == "load", result
        return result.load

    def stages(self) -> list[stage_pb2.StageStatus]:
        """Stages of the newest heartbeat."""
        return list(self.heartbeats[-1].stages) if self.heartbeats else []


class InferenceStream:
    """One Serve stream, as the leader sees it."""

    def __init__(self, hello: inference_link_pb2.InferenceHello) -> None:
        self.hello = hello
        self.events: dict[str, list[generation_pb2.GenerationEvent]] = {}
        self.down: asyncio.Queue = asyncio.Queue()
        self.reads = asyncio.Event()  # cleared: this leader reads no more events
        self.reads.set()

    def request(self, request_id: str, prompt: str, placement_id: str = "p1", epoch: int = 1, **asked: Any) -> None:
        """Ask for a reply."""
        generation = generation_pb2.Generation(prompt=prompt)
        request = inference_link_pb2.ReplyRequest(
            request_id=request_id, placement_id=placement_id, epoch=epoch, generation=generation, **asked
        )
        self.down.put_nowait(inference_link_pb2.ServeResponse(request=request))

    def resume(self, request_id: str, after_sequence: int) -> None:
        """Want the events of a kept reply."""
        resume = inference_link_pb2.ResumeReply(request_id=request_id, after_sequence=after_sequence)
        self.down.put_nowait(inference_link_pb2.ServeResponse(resume=resume))

    def cancel(self, request_id: str) -> None:
        """No longer want a reply."""
        cancel = inference_link_pb2.CancelReply(request_id=request_id)
        self.down.put_nowait(inference_link_pb2.ServeResponse(cancel=cancel))

    async def reply(self, request_id: str) -> list[generation_pb2.GenerationEvent]:
        """All events of a reply, up to its end."""

        def has_ended() -> bool:
            seen = self.events.get(request_id, [])
            return bool(seen) and seen[-1].WhichOneof("event") in ("done", "failed")

        await eventually(has_ended, f"reply {request_id} ended")
        return self.events[request_id]


class ScriptedLeader(
    fellow_link_pb2_grpc.FellowLinkServicer,
    inference_link_pb2_grpc.InferenceLinkServicer,
    logs_pb2_grpc.FellowLogsServicer,
    transfer_pb2_grpc.TransferServicer,
):
    """The scripted server. Everything a fellow did is in its lists; cuts and corrupts are what goes wrong next."""

    running: ClassVar[list["ScriptedLeader"]] = []

    def __init__(self, *models: TinyModel) -> None:
        self.models = {model.model_id: model for model in models}
        self.connections: list[FellowConnection] = []
        self.streams: list[InferenceStream] = []
        self.unwanted: list[stage_pb2.StageSpec] = []
        self.heartbeat_ms = 100
        self.log_lines: list[logs_pb2.LogLine] = []
        self.takes_logs = True
        self.node_credential = ""
        self.answers_health = False
        self.credentials_seen: list[str] = []
        self.cuts_after_bytes: list[int] = []
        self.corrupt: dict[str, int] = {}
        self.fetched_bytes = 0
        self.fetches_running = 0
        self.hold_after_bytes = float("inf")
        self.go_on = asyncio.Event()
        self.port = 0
        self._server: grpc.aio.Server | None = None

    @property
    def address(self) -> str:
        """What a fellow dials."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen; again on the same port after stop()."""
        self._server = make_server()
        fellow_link_pb2_grpc.add_FellowLinkServicer_to_server(self, self._server)
        inference_link_pb2_grpc.add_InferenceLinkServicer_to_server(self, self._server)
        transfer_pb2_grpc.add_TransferServicer_to_server(self, self._server)
        if self.takes_logs:
            logs_pb2_grpc.add_FellowLogsServicer_to_server(self, self._server)
        if self.answers_health:
            await announce(add_health_and_reflection(self._server, ()), (), serving=True)
        self.port = listen(self._server, f"127.0.0.1:{self.port}")
        await self._server.start()
        self.running.append(self)

    async def stop(self) -> None:
        """Die at once."""
        if self._server:
            server, self._server = self._server, None
            await server.stop(None)

    async def connection(self, number: int = 1) -> FellowConnection:
        """The n-th registration."""
        await eventually(lambda: len(self.connections) >= number, f"a fellow registered {number} times", 30)
        return self.connections[number - 1]

    async def stream(self, number: int = 1) -> InferenceStream:
        """The n-th Serve stream."""
        await eventually(lambda: len(self.streams) >= number, f"a fellow opened {number} inference streams", 30)
        return self.streams[number - 1]

    async def Connect(self, requests, context):
        register = (await anext(requests)).register
        fellow = FellowConnection(register)
        self.connections.append(fellow)
        registered = fellow_link_pb2.Registered(
            fellow_id="f1",
            name=register.name,
            heartbeat_ms=self.heartbeat_ms,
            lease_ms=3 * self.heartbeat_ms,
            unwanted=self.unwanted,
            node_credential=self.node_credential,
        )
        fellow.down.put_nowait(fellow_link_pb2.ConnectResponse(registered=registered))
        async with both_ways(self._hear(requests, fellow)):
            while (message := await fellow.down.get()) is not None:
                yield message

    async def _hear(self, requests, fellow: FellowConnection) -> None:
        async for message in requests:
            body = message.WhichOneof("body")
            if body == "heartbeat":
                fellow.heartbeats.append(message.heartbeat)
            elif body == "stage_event":
                fellow.events.append(message.stage_event)
            elif body == "progress":
                fellow.progress.append(message.progress)
            elif body == "result":
                fellow.results.setdefault(message.result.signal_id, []).append(message.result)

    async def Push(self, requests, context):
        async for batch in requests:
            self.log_lines += batch.lines
        return logs_pb2.PushDone(taken=len(self.log_lines))

    async def Serve(self, requests, context):
        stream = InferenceStream((await anext(requests)).hello)
        self.credentials_seen.append(dict(context.invocation_metadata()).get("authorization", ""))
        self.streams.append(stream)
        async with both_ways(self._hear_replies(requests, stream)):
            while (message := await stream.down.get()) is not None:
                yield message

    async def _hear_replies(self, requests, stream: InferenceStream) -> None:
        async for message in requests:
            await stream.reads.wait()
            stream.events.setdefault(message.event.request_id, []).append(message.event.event)

    async def GetManifest(self, request, context):
        if request.model_id not in self.models:
            raise ModelNotFound(f"no model {request.model_id}", available=", ".join(self.models))
        manifest_json = self.models[request.model_id].manifest_json
        return transfer_pb2.GetManifestResponse(
            manifest_json=manifest_json, manifest_sha256=manifest_sha256(manifest_json)
        )

    async def Fetch(self, request, context):
        self.fetches_running += 1
        try:
            async for chunk in self._fetch(request):
                yield chunk
        finally:
            self.fetches_running -= 1

    async def _fetch(self, request):
        model = self.models[request.model_id]
        if request.manifest_sha256 != manifest_sha256(model.manifest_json):
            raise Conflict("another manifest")
        cut_at = self.cuts_after_bytes.pop(0) if self.cuts_after_bytes else None
        sent_bytes = 0
        for position, item in enumerate(request.items):
            name = item.tensor or item.file
            raw = bytearray((model.tensors if item.tensor else model.files)[name])
            if self.corrupt.get(name, 0) > 0:
                self.corrupt[name] -= 1
                raw[len(raw) // 2] ^= 1
            for begin in range(item.offset, len(raw), CHUNK_BYTES):
                if self.fetched_bytes >= self.hold_after_bytes:
                    await self.go_on.wait()
                if cut_at is not None and sent_bytes >= cut_at:
                    raise LinkBroken("the stream was cut")
                payload = bytes(raw[begin : begin + CHUNK_BYTES])
                yield transfer_pb2.FetchChunk(item=position, offset=begin, data=payload)
                sent_bytes += len(payload)
                self.fetched_bytes += len(payload)


@contextlib.asynccontextmanager
async def both_ways(hearing) -> AsyncIterator[None]:
    """Hear while the other direction speaks."""
    task = asyncio.create_task(hearing)
    try:
        yield
    finally:
        task.cancel()


def hash_of(raw: bytes) -> str:
    """SHA-256, hex."""
    return hashlib.sha256(raw).hexdigest()
