"""A scripted leader with what the chat page shows beyond a chat: placements, figures, and tokens that are asked for."""

import asyncio

from silentswarm.core.v1 import stage_pb2
from silentswarm.leader.v1 import serving_pb2

from tests.integration.gateway.scripted_leader import WAIT_S, ScriptedLeader, done, started, tokens

READY = serving_pb2.PLACEMENT_STATE_READY
TOKEN = "sk-swarm-0123456789abcdef"


def stage(at: int, name: str, state: str = "loaded", route: int = stage_pb2.ROUTE_DIRECT) -> serving_pb2.StagePlacement:
    """One stage of fifteen layers."""
    return serving_pb2.StagePlacement(
        stage_index=at,
        fellow_id=f"id-{name}",
        fellow_name=name,
        layer_start=15 * at,
        layer_stop=15 * at + 15,
        route=route,
        state=state,
    )


def placed(*stages: serving_pb2.StagePlacement, state: int = READY, reason: str = "") -> serving_pb2.ModelStatus:
    """Where a model stands, with these stages."""
    return serving_pb2.ModelStatus(
        model_id="tiny", state=state, reason=reason, epoch=3, stages=stages, probe_lap_ms=11.5, context_tokens=2048
    )


def measured(*names: str) -> serving_pb2.ModelPerformance:
    """Figures of a model on these fellows."""
    devices = {"kitchen": "GeForce GTX 1660 SUPER", "attic": "GeForce GTX 1050 Ti"}
    return serving_pb2.ModelPerformance(
        model_id="tiny",
        window_s=900,
        completed=42,
        cancelled=2,
        tokens_per_s=18.4,
        running=1,
        waiting=3,
        first_token=serving_pb2.Spread(p50_ms=340, p95_ms=910, p99_ms=1400),
        inter_token=serving_pb2.Spread(p50_ms=54, p95_ms=71, p99_ms=120),
        split=serving_pb2.TimeSplit(
            stage_ms=[21.4, 17.9], link_ms=8.2, wait_ms=3.1, sample_ms=0.9, bytes_per_token=2304, batch_mean=1.6
        ),
        stages=[
            serving_pb2.StagePerformance(
                stage_index=at,
                fellow_name=name,
                devices=[devices.get(name, "CPU")],
                busy_share=0.61 - 0.2 * at,
                kv_tokens_used=900,
                kv_tokens_max=16384,
            )
            for at, name in enumerate(names)
        ],
    )


class PageLeader(ScriptedLeader):
    """Answers what its fields say. tokens: secret -> scopes, as the scripted leader has them."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__.pop("GetPerformance", None)  # scripted here
        self.placement = placed(stage(0, "kitchen"), stage(1, "attic"))
        self.performance = measured("kitchen", "attic")

    async def GetModelStatus(self, request, context):
        self._fail()
        if request.model_id == self.placement.model_id:
            return self.placement
        return serving_pb2.ModelStatus(model_id=request.model_id, state=serving_pb2.PLACEMENT_STATE_UNSPECIFIED)

    async def GetPerformance(self, request, context):
        return self.performance


def says(*texts: str, pause_s: float = 0.0):
    """A script: these texts, then the end."""

    async def script(request):
        yield started()
        for text in texts:
            yield tokens(text)
            await asyncio.sleep(pause_s)
        yield done(completion_tokens=len(texts))

    return script


def says_then_hangs(*texts: str):
    """A script: these texts, then nothing until the call is cancelled."""

    async def script(request):
        yield started()
        for text in texts:
            yield tokens(text)
        await asyncio.sleep(WAIT_S)

    return script
