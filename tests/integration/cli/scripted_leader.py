"""A leader that answers what a test gives it: real sockets, the real guard and errors, no swarm behind it."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import grpc
from google.protobuf.message import Message
from silentswarm.core.v1 import generation_pb2, hardware_pb2, stage_pb2, weights_pb2
from silentswarm.leader.v1 import (
    fleet_pb2,
    fleet_pb2_grpc,
    inference_pb2,
    inference_pb2_grpc,
    logs_pb2,
    logs_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    serving_pb2,
    serving_pb2_grpc,
    status_pb2,
    status_pb2_grpc,
    telemetry_pb2,
    telemetry_pb2_grpc,
    tokens_pb2,
    tokens_pb2_grpc,
)
from swarm_core.errors import (
    BadRequest,
    FellowNotFound,
    ModelNotFound,
    NotEnoughMemory,
    PermissionDenied,
    TooFewFellows,
)
from swarm_rpc.server import listen, make_server

MODEL = models_pb2.Model(
    model_id="tiny",
    model_type="llama",
    layer_count=30,
    parameter_count=134_515_008,
    weight_bytes=93 * 2**20,
    source="/models/[tiny].gguf",
    state="unloaded",
)
TRAINED = models_pb2.Model(
    model_id="org/trained",
    model_type="qwen3",
    layer_count=28,
    parameter_count=596_049_920,
    weight_bytes=1137 * 2**20,
    context_tokens_max=40_960,
    source="org/trained",
    state="ready",
    quantization=weights_pb2.Quantization(method="nf4"),
    split=models_pb2.TrainingSplit(
        stage_count=2,
        recorded=True,
        shards=[
            models_pb2.Shard(layer_start=0, layer_stop=14, weight_bytes=600 * 2**20, codec_out="int8"),
            models_pb2.Shard(layer_start=14, layer_stop=28, weight_bytes=537 * 2**20),
        ],
    ),
    adapters=["ann/pirate", "ann/poet"],
    weights_from="https://hub.example/org/trained at 0123abc",
    held=[
        models_pb2.HeldBytes(quantization=method, weight_bytes=size * 2**20)
        for method, size in (("none", 1137), ("nf4", 531), ("int8", 718), ("int4-fast", 525))
    ],
)
ADAPTER = models_pb2.Model(
    model_id="ann/pirate",
    model_type="qwen3",
    layer_count=28,
    parameter_count=2_293_760,
    weight_bytes=9 * 2**20,
    source="/adapters/pirate",
    state="ready",
    adapter=models_pb2.Adapter(base_model_id="org/trained", rank=16, targets=["q_proj", "v_proj"]),
)
MODELS = {model.model_id: model for model in (MODEL, TRAINED, ADAPTER)}


TOKEN = tokens_pb2.ApiToken(
    token_id="tok-1",
    label="ann [phone]",
    scopes=["read", "operate"],
    created_s=1_760_000_000,
    expires_s=9_999_999_999,
    usage=tokens_pb2.TokenUsage(requests=12, prompt_tokens=3_400, completion_tokens=56_000),
)
JOIN_TOKEN = tokens_pb2.JoinToken(
    join_token_id="join-1", label="garage", created_s=1_760_000_000, expires_s=9_999_999_999, uses_left=2, used=1
)


PERFORMANCE = serving_pb2.ModelPerformance(
    model_id="tiny",
    window_s=885.0,
    completed=1212,
    failed=3,
    too_long=2,
    cancelled=1,
    prompt_tokens=36_000,
    generated_tokens=412_000,
    tokens_per_s=41.26,
    running=4,
    waiting=2,
    first_token=serving_pb2.Spread(p50_ms=310.4, p95_ms=1204.0, p99_ms=12_400.0),
    inter_token=serving_pb2.Spread(p50_ms=24.31, p95_ms=61.0, p99_ms=88.8),
    split=serving_pb2.TimeSplit(
        queue_ms=180.0,
        prefill_ms=104.0,
        stage_ms=[8.0, 6.0],
        wait_ms=3.5,
        link_ms=2.0,
        sample_ms=0.5,
        detokenize_ms=1.2,
        bytes_per_token=4700.0,
        batch_mean=3.2,
    ),
    stages=[
        serving_pb2.StagePerformance(
            stage_index=index,
            fellow_name=f"fellow-{index + 1}",
            devices=["NVIDIA GeForce [GTX] 1660 SUPER"],
            layer_start=15 * index,
            layer_stop=15 * index + 15,
            route=stage_pb2.ROUTE_DIRECT,
            busy_share=None if index else 0.934,
            kv_tokens_used=77,
            kv_tokens_max=6000,
        )
        for index in range(2)
    ],
)


POOL = telemetry_pb2.PoolMetrics(
    pool_id="main",
    connected=1,
    nodes=[
        telemetry_pb2.NodeMetrics(
            fellow_name="fellow-1",
            state="connected",
            availability=0.9953,
            leader_round_trip_ms=12.34,
            temperature_c=61.0,
            grade=telemetry_pb2.Grade(
                band="B",
                score=79.4,
                reasons=[telemetry_pb2.GradeReason(signal="crashes", points=20.0, words="a stage crashed twice")],
            ),
        ),
        telemetry_pb2.NodeMetrics(fellow_name="fellow-2", state="silent"),
    ],
    serving=telemetry_pb2.ServingMetrics(completed=12, failed=1, tokens_per_s=3.25, first_token_ms=310.0),
)


def stages(state: str, step: str = "", done: int = 0, total: int = 0) -> list[serving_pb2.StagePlacement]:
    """Two stages on two fellows, both as far."""
    cut = ((0, 15), (15, 30))
    return [
        serving_pb2.StagePlacement(
            stage_index=index,
            fellow_id=f"id-{index + 1}",
            fellow_name=f"fellow-{index + 1}",
            layer_start=start,
            layer_stop=stop,
            weight_bytes=2**26,
            route=stage_pb2.ROUTE_DIRECT,
            state=state,
            step=step,
            done=done,
            total=total,
        )
        for index, (start, stop) in enumerate(cut)
    ]


@dataclass
class ScriptedLeader(
    models_pb2_grpc.ModelsServicer,
    serving_pb2_grpc.ServingServicer,
    inference_pb2_grpc.InferenceServicer,
    fleet_pb2_grpc.FleetServicer,
    status_pb2_grpc.StatusServicer,
    tokens_pb2_grpc.TokensServicer,
    telemetry_pb2_grpc.TelemetryServicer,
    logs_pb2_grpc.LogsServicer,
):
    """Answers, and keeps what it was asked. load_ends: the states a watched load goes through.

    never_loaded: a watched load tells nothing and never ends. not_ready: the reason it takes no work.
    scope_needed: tokens are asked for, and the caller's lacks this scope. bearers: what callers presented. made: what
    tokens were asked for. endless: a reply never ends by itself. cancelled: set when the caller of an endless reply
    went away.
    """

    load_ends: tuple[serving_pb2.ModelStatus, ...] = ()
    never_loaded: bool = False
    not_ready: str = ""
    too_large: bool = False
    endless: bool = False
    loads: list[serving_pb2.LoadModelRequest] = field(default_factory=list)
    plans: list[serving_pb2.LoadModelRequest] = field(default_factory=list)
    imports: list[models_pb2.ImportModelRequest] = field(default_factory=list)
    generations: list[inference_pb2.GenerateRequest] = field(default_factory=list)
    cancelled: threading.Event = field(default_factory=threading.Event)
    address: str = ""
    scope_needed: str = ""
    bearers: list[str] = field(default_factory=list)
    made: list[Message] = field(default_factory=list)

    async def GetSelf(self, request, context):
        self.bearers.append(dict(context.invocation_metadata()).get("authorization", ""))
        return tokens_pb2.GetSelfResponse(enforced=bool(self.scope_needed), token=TOKEN if self.scope_needed else None)

    async def CreateToken(self, request, context):
        if self.scope_needed:
            raise PermissionDenied("this needs a token with the scope admin; yours has read", scope=self.scope_needed)
        self.made.append(request)
        return tokens_pb2.CreateTokenResponse(token=TOKEN, secret="sk-swarm-shown-once")

    async def ListTokens(self, request, context):
        return tokens_pb2.ListTokensResponse(tokens=[TOKEN], enforced=True)

    async def RevokeToken(self, request, context):
        if request.token_id != TOKEN.token_id:
            raise BadRequest(f"no token {request.token_id!r}", field="token_id")
        return tokens_pb2.RevokeTokenResponse()

    async def CreateJoinToken(self, request, context):
        self.made.append(request)
        return tokens_pb2.CreateJoinTokenResponse(join_token=JOIN_TOKEN, secret="swarm-join-shown-once")

    async def ListJoinTokens(self, request, context):
        return tokens_pb2.ListJoinTokensResponse(join_tokens=[JOIN_TOKEN])

    async def RevokeJoinToken(self, request, context):
        return tokens_pb2.RevokeJoinTokenResponse()

    async def ListModels(self, request, context):
        broken = models_pb2.Model(model_id="bad", broken="no config.json")
        return models_pb2.ListModelsResponse(models=[MODEL, ADAPTER, broken, TRAINED])

    async def GetModel(self, request, context):
        if request.model_id not in MODELS:
            raise ModelNotFound(f"no model {request.model_id!r}; there is: tiny", available="tiny")
        return MODELS[request.model_id]

    async def ImportModel(self, request, context):
        self.imports.append(request)
        for done in (0, 50, 100):
            yield models_pb2.ImportModelEvent(progress=models_pb2.ImportProgress(step="convert", done=done, total=100))
        yield models_pb2.ImportModelEvent(model=ADAPTER if request.base_model_id else MODEL)

    async def LoadModel(self, request, context):
        self.loads.append(request)
        if request.num_stages > 2:
            raise TooFewFellows(f"{request.num_stages} stages need as many fellows; 2 are connected")
        if self.too_large:
            raise NotEnoughMemory("tiny needs 9 GB with 4,096 tokens of context; free: fellow-1 2 GB.")
        return serving_pb2.ModelStatus(
            model_id=request.model_id, state=serving_pb2.PLACEMENT_STATE_LOADING, stages=stages("loading")
        )

    async def PlanModel(self, request, context):
        self.plans.append(request)
        if self.too_large:
            raise NotEnoughMemory("tiny needs 9 GB with 4,096 tokens of context; free: fellow-1 2 GB.")
        return serving_pb2.ModelStatus(
            model_id=request.model_id,
            state=serving_pb2.PLACEMENT_STATE_PLANNED,
            context_tokens=min(request.context_tokens or 4096, 8192),
            stages=stages("planned"),
            notes=["one reply at a time: fellow-2 does not declare serve_concurrent"],
        )

    async def WatchModel(self, request, context):
        if self.never_loaded:
            await asyncio.Event().wait()
        for status in self.load_ends:
            yield status

    async def UnloadModel(self, request, context):
        return serving_pb2.ModelStatus(model_id=request.model_id, state=serving_pb2.PLACEMENT_STATE_UNLOADED)

    async def ListServing(self, request, context):
        status = serving_pb2.ModelStatus(
            model_id="tiny",
            state=serving_pb2.PLACEMENT_STATE_READY,
            stages=stages("loaded"),
            epoch=4,
            quantization="nf4",
            dtype="F32",
            adapters=["pirate", "poet"],
        )
        status.stages[0].live.MergeFrom(
            stage_pb2.StageStatus(
                sessions=3, kv_tokens_used=77, kv_tokens_measured=6000, spec=stage_pb2.StageSpec(kv_tokens=8192)
            )
        )
        return serving_pb2.ListServingResponse(models=[status])

    async def GetModelStatus(self, request, context):
        if request.model_id != "tiny":
            return serving_pb2.ModelStatus(model_id=request.model_id)
        return serving_pb2.ModelStatus(
            model_id="tiny",
            state=serving_pb2.PLACEMENT_STATE_READY,
            stages=[serving_pb2.StagePlacement(predicted_ms=50.0, measured_ms=54.25)],
            predicted_tokens_per_s=18.2,
            measured_tokens_per_s=16.9,
        )

    async def GetPerformance(self, request, context):
        if request.model_id not in ("tiny", "org/quiet"):
            raise ModelNotFound(f"no model {request.model_id!r}; there is: tiny", available="tiny")
        if request.model_id == "org/quiet":
            return serving_pb2.ModelPerformance(model_id=request.model_id, window_s=41.0)
        return PERFORMANCE

    async def ListFellows(self, request, context):
        device = hardware_pb2.Device(kind="cpu", name="A processor", memory_free_bytes=8 * 2**30)
        fellow = fleet_pb2.Fellow(
            name="fellow-1", state="connected", hardware=hardware_pb2.Hardware(devices=[device]), heartbeat_age_s=2.0
        )
        fellow.stages.add().spec.model_id = "org/trained"
        return fleet_pb2.ListFellowsResponse(fellows=[fellow])

    async def PingFellow(self, request, context):
        if request.fellow_id != "fellow-1":
            raise FellowNotFound(f"no fellow {request.fellow_id!r}")
        return fleet_pb2.PingFellowResponse(round_trip_ms=1.5)

    async def ReleaseFellow(self, request, context):
        return fleet_pb2.ReleaseFellowResponse()

    async def PurgeFellow(self, request, context):
        return fleet_pb2.PurgeFellowResponse()

    async def UpdateFellow(self, request, context):
        return fleet_pb2.UpdateFellowResponse()

    async def DeleteFellow(self, request, context):
        return fleet_pb2.DeleteFellowResponse()

    async def GetPoolMetrics(self, request, context):
        if request.pool_id != "main":
            raise BadRequest(f"no pool {request.pool_id!r}; there are: main", field="pool_id")
        return POOL

    async def ListPoolEvents(self, request, context):
        told = telemetry_pb2.PoolEvent(
            sequence=7, at_s=1_760_000_000, fellow_name="fellow-2", kind="stage_crashed", words="tiny stage 1: [gone]"
        )
        return telemetry_pb2.ListPoolEventsResponse(events=[told])

    async def WatchLogs(self, request, context):
        if request.fellow_id != "fellow-1":
            raise FellowNotFound(f"no fellow {request.fellow_id!r}")
        for number in range(request.tail_lines):
            yield logs_pb2.LogLine(number=number + 1, source="tiny-stage-0", text=f"line [bold]{number}")
            if number == 2:
                return

    async def GetHealth(self, request, context):
        return status_pb2.GetHealthResponse(version="0.1.0", uptime_s=12.0)

    async def GetReady(self, request, context):
        return status_pb2.GetReadyResponse(ready=not self.not_ready, reasons=[self.not_ready] if self.not_ready else [])

    async def Generate(self, request, context) -> AsyncIterator[inference_pb2.GenerateEvent]:
        self.generations.append(request)
        try:
            yield _event(started=generation_pb2.GenerationEvent.Started(prompt_tokens=5, seed=1))
            for part in ("[bold]The capital", " of France", " is Paris."):
                yield _event(tokens=generation_pb2.GenerationEvent.TokenBatch(text=part, ids=[1]))
            while self.endless:
                await asyncio.sleep(0.02)
                yield _event(tokens=generation_pb2.GenerationEvent.TokenBatch(text=" more", ids=[2]))
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled.set()
            raise
        done = generation_pb2.GenerationEvent.Done(
            finish_reason=generation_pb2.FINISH_REASON_STOP, prompt_tokens=5, completion_tokens=3
        )
        yield _event(done=done)


@contextmanager
def serve(leader: ScriptedLeader, port: int = 0) -> Iterator[ScriptedLeader]:
    """The leader on a port, 0 for a free one, in a thread of its own; its address is set while inside."""
    loop = asyncio.new_event_loop()
    started: list[grpc.aio.Server] = []

    async def start() -> None:
        server = make_server()
        for add in (
            models_pb2_grpc.add_ModelsServicer_to_server,
            serving_pb2_grpc.add_ServingServicer_to_server,
            inference_pb2_grpc.add_InferenceServicer_to_server,
            fleet_pb2_grpc.add_FleetServicer_to_server,
            status_pb2_grpc.add_StatusServicer_to_server,
            tokens_pb2_grpc.add_TokensServicer_to_server,
            telemetry_pb2_grpc.add_TelemetryServicer_to_server,
            logs_pb2_grpc.add_LogsServicer_to_server,
        ):
            add(leader, server)
        leader.address = f"127.0.0.1:{listen(server, f'127.0.0.1:{port}')}"
        await server.start()
        started.append(server)

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(start(), loop).result(timeout=10)
    try:
        yield leader
    finally:
        asyncio.run_coroutine_threadsafe(started[0].stop(grace=0), loop).result(timeout=10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(timeout=10)
        loop.close()


def _event(**event: object) -> inference_pb2.GenerateEvent:
    return inference_pb2.GenerateEvent(request_id="r-1", event=generation_pb2.GenerationEvent(**event))
