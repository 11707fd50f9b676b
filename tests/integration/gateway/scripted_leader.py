"""A leader that answers by script: real gRPC, the real guard, no machines behind it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import grpc
from silentswarm.core.v1 import access_pb2, generation_pb2
from silentswarm.leader.v1 import (
    inference_pb2,
    inference_pb2_grpc,
    models_pb2,
    models_pb2_grpc,
    serving_pb2,
    serving_pb2_grpc,
    status_pb2,
    status_pb2_grpc,
    tokens_pb2,
    tokens_pb2_grpc,
    trust_pb2_grpc,
)
from swarm_core.errors import ModelNotFound, PermissionDenied, ReplyNotFound, SwarmError, Unauthenticated
from swarm_rpc.server import listen, make_server

Event = generation_pb2.GenerationEvent
Script = Callable[[inference_pb2.GenerateRequest], AsyncIterator[Event]]
WAIT_S = 30.0  # longer than any test waits for what must come before
TIMING = generation_pb2.Timing(
    queue_ms=1, prefill_ms=20, decode_ms=30, stage_ms=[2.5, 3.5], link_ms=0.5, bytes_per_token=2304, route="direct"
)


SCOPES = {access_pb2.ACCESS_READ: "read", access_pb2.ACCESS_OPERATE: "operate", access_pb2.ACCESS_ADMIN: "admin"}


def started(prompt_tokens: int = 7) -> Event:
    """The reply is admitted."""
    return Event(sequence=1, started=Event.Started(prompt_tokens=prompt_tokens, seed=1))


def queued(position: int, reason: str = "8 of 8 places are taken") -> Event:
    """It waits."""
    return Event(queued=Event.Queued(position=position, reason=reason))


def tokens(text: str) -> Event:
    """One batch of text."""
    return Event(sequence=2, tokens=Event.TokenBatch(text=text, ids=[1]))


def done(finish: int = generation_pb2.FINISH_REASON_STOP, completion_tokens: int = 3) -> Event:
    """The end."""
    return Event(
        sequence=3,
        done=Event.Done(finish_reason=finish, prompt_tokens=7, completion_tokens=completion_tokens, timing=TIMING),
    )


class ScriptedLeader(
    inference_pb2_grpc.InferenceServicer,
    models_pb2_grpc.ModelsServicer,
    serving_pb2_grpc.ServingServicer,
    status_pb2_grpc.StatusServicer,
    tokens_pb2_grpc.TokensServicer,
):
    """Answers what its fields say, and records what it was asked. tokens: secret -> scopes; none: nobody is asked."""

    def __init__(self) -> None:
        for service in (models_pb2, serving_pb2, status_pb2, tokens_pb2):
            for described in service.DESCRIPTOR.services_by_name.values():
                for method in described.methods:
                    if method.name not in vars(ScriptedLeader):
                        setattr(self, method.name, unscripted)
        self.scripts: dict[str, Script] = {}
        self.tokens: dict[str, tuple[str, ...]] = {}
        self.knows_tokens = True  # false: a leader from before there were any
        self.presented: list[tuple[str, str]] = []  # (RPC, its authorization)
        self.asked: list[inference_pb2.GenerateRequest] = []
        self.resumed: list[inference_pb2.ResumeRequest] = []
        self.kept: Callable[[inference_pb2.ResumeRequest], AsyncIterator[Event]] | None = None  # None: nothing is
        self.loads: list[serving_pb2.LoadModelRequest] = []
        self.begun = asyncio.Event()
        # The call is over. A script that waits for WAIT_S only gets there by being cancelled.
        self.ended = asyncio.Event()
        self.failure: SwarmError | None = None
        self.ready = status_pb2.GetReadyResponse(ready=True)
        self.serving: list[serving_pb2.ModelStatus] = []
        self.statuses: list[serving_pb2.ModelStatus | SwarmError | float] = []
        self.models = [
            models_pb2.Model(model_id="tiny", created_s=1_700_000_000, context_tokens_max=2048, state="ready"),
            models_pb2.Model(model_id="org/tiny", created_s=1_700_000_001, state="idle"),
            models_pb2.Model(model_id="broken", broken="model.safetensors is cut short"),
        ]

    async def Generate(self, request, context):
        self.asked.append(request)
        self.begun.set()
        context.add_done_callback(lambda _: self.ended.set())
        script = self.scripts.get(request.model_id)
        if script is None:
            raise ModelNotFound(f"no model {request.model_id!r}", available="org/tiny, tiny")
        async for event in script(request):
            yield inference_pb2.GenerateEvent(request_id=request.request_id, event=event)

    async def Resume(self, request, context):
        self.resumed.append(request)
        if self.kept is None:
            raise ReplyNotFound("no fellow keeps it")
        async for event in self.kept(request):
            yield inference_pb2.GenerateEvent(request_id=request.request_id, event=event)

    async def ListModels(self, request, context):
        self._fail()
        return models_pb2.ListModelsResponse(models=self.models)

    async def GetModel(self, request, context):
        for model in self.models:
            if model.model_id == request.model_id:
                return model
        raise ModelNotFound(f"no model {request.model_id!r}", available="org/tiny, tiny")

    async def LoadModel(self, request, context):
        self._fail()
        self.loads.append(request)
        return serving_pb2.ModelStatus(model_id=request.model_id, state=serving_pb2.PLACEMENT_STATE_LOADING)

    async def ListServing(self, request, context):
        return serving_pb2.ListServingResponse(models=self.serving)

    async def GetModelStatus(self, request, context):
        self._fail()
        return serving_pb2.ModelStatus(model_id=request.model_id, epoch=2**63)

    async def WatchModel(self, request, context):
        self.begun.set()
        context.add_done_callback(lambda _: self.ended.set())
        for status in self.statuses:
            if isinstance(status, SwarmError):
                raise status
            if isinstance(status, float):
                await asyncio.sleep(status)
            else:
                yield status

    async def GetHealth(self, request, context):
        return status_pb2.GetHealthResponse(version="1.2.3", uptime_s=4.5)

    async def GetReady(self, request, context):
        return self.ready

    async def GetSelf(self, request, context):
        secret = bearer_of(context.invocation_metadata())
        if not self.tokens:
            return tokens_pb2.GetSelfResponse()
        token = tokens_pb2.ApiToken(token_id=f"tok_{secret[-4:]}", scopes=self.tokens[secret])
        return tokens_pb2.GetSelfResponse(enforced=True, token=token)

    async def authorize(self, access: int, details: grpc.HandlerCallDetails) -> None:
        """As a leader does: every call by itself, whatever a gateway let through."""
        secret = bearer_of(details.invocation_metadata)
        self.presented.append((details.method.rpartition("/")[2], secret))
        if not self.tokens or access == access_pb2.ACCESS_PUBLIC:
            return
        if secret not in self.tokens:
            raise Unauthenticated("who are you?")
        order = list(SCOPES.values())
        if max(order.index(scope) for scope in self.tokens[secret]) < order.index(SCOPES[access]):
            raise PermissionDenied(f"the scope {SCOPES[access]} is needed")

    def _fail(self) -> None:
        if self.failure is not None:
            raise self.failure


def bearer_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> str:
    """The token a call carries, or ""."""
    return str(dict(metadata or ()).get("authorization", "")).removeprefix("Bearer ")


async def unscripted(request: Any, context: grpc.aio.ServicerContext) -> None:
    """As a leader answers that is too old to know the call."""
    await context.abort(grpc.StatusCode.UNIMPLEMENTED, "not scripted")


async def start_leader(
    leader: ScriptedLeader,
    port: int = 0,
    credentials: grpc.ServerCredentials | None = None,
    roots: trust_pb2_grpc.TrustServicer | None = None,
) -> tuple[grpc.aio.Server, int]:
    """A real server on a free port. credentials: None is plaintext. roots: who tells them, with TLS."""
    server = make_server(authorize=leader.authorize)
    inference_pb2_grpc.add_InferenceServicer_to_server(leader, server)
    models_pb2_grpc.add_ModelsServicer_to_server(leader, server)
    serving_pb2_grpc.add_ServingServicer_to_server(leader, server)
    status_pb2_grpc.add_StatusServicer_to_server(leader, server)
    if leader.knows_tokens:
        tokens_pb2_grpc.add_TokensServicer_to_server(leader, server)
    if roots is not None:
        trust_pb2_grpc.add_TrustServicer_to_server(roots, server)
    bound = listen(server, f"127.0.0.1:{port}", credentials)
    await server.start()
    return server, bound
