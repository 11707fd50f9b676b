"""Placements and plans as leader.v1.ModelStatus, and load requests as the planner's. Only translation."""

from silentswarm.core.v1 import stage_pb2
from silentswarm.leader.v1 import serving_pb2
from swarm_core.errors import BadRequest
from swarm_core.quantization import method_of
from swarm_core.servable_parts import CODECS

from swarm_leader.domain.planning.faster import still_true
from swarm_leader.domain.planning.plan import NO_CODEC, Plan, PlanRequest
from swarm_leader.domain.records import PlacementState, StageRecord, Transport
from swarm_leader.flows.board import Placement
from swarm_leader.flows.gate import Gates
from swarm_leader.flows.measure import Measuring
from swarm_leader.flows.registry import Registry
from swarm_leader.flows.words import route_to_proto, run_to_proto
from swarm_leader.rpc.covers import write_covers
from swarm_leader.rpc.speeds import write_forecast, write_measured, write_measured_links

ADAPTERS_MAX = 64  # of one load; more than any stage holds
CONTEXT_TOKENS_MIN = 64  # a chat template and one short question
_TRANSPORTS = {
    stage_pb2.TRANSPORT_AUTO: Transport.AUTO,
    stage_pb2.TRANSPORT_TUNNEL: Transport.TUNNEL,
    stage_pb2.TRANSPORT_P2P: Transport.P2P,
    stage_pb2.TRANSPORT_MESH: Transport.MESH,
}
_TRANSPORTS_TO_PROTO = {transport: number for number, transport in _TRANSPORTS.items()}
_STATES = {state: serving_pb2.PlacementState.Value(f"PLACEMENT_STATE_{state.name}") for state in PlacementState}


def plan_request_from_proto(request: serving_pb2.LoadModelRequest, usual: Transport) -> PlanRequest:
    """A load request. usual: the transport of one that names none. Raises BadRequest."""
    if not request.model_id:
        raise BadRequest("model_id is empty", field="model_id")
    if request.transport == stage_pb2.TRANSPORT_UNSPECIFIED:
        transport = usual
    elif request.transport in _TRANSPORTS:
        transport = _TRANSPORTS[request.transport]
    else:
        raise BadRequest(f"transport {request.transport} is not known", field="transport")
    if any(not fellow_id for fellow_id in request.fellow_ids):
        raise BadRequest("a fellow id is empty", field="fellow_ids")
    if 0 < request.context_tokens < CONTEXT_TOKENS_MIN:
        raise BadRequest(
            f"a context of {request.context_tokens} tokens is too short for a chat; ask for at least "
            f"{CONTEXT_TOKENS_MIN}, or for none to get the leader's usual one",
            field="context_tokens",
            context_tokens=request.context_tokens,
        )
    if len(request.adapters) > ADAPTERS_MAX:
        raise BadRequest(f"{len(request.adapters)} adapters are too many; at most {ADAPTERS_MAX}", field="adapters")
    if any(not adapter for adapter in request.adapters):
        raise BadRequest("an adapter's id is empty", field="adapters")
    if request.codec not in ("", NO_CODEC, *CODECS):
        known = ", ".join((NO_CODEC, *CODECS))
        raise BadRequest(f"codec {request.codec[:40]!r} does not exist; one of: {known}", field="codec")
    asked = request.quantization
    return PlanRequest(
        num_stages=request.num_stages,
        fellow_ids=tuple(request.fellow_ids),
        transport=transport,
        context_tokens=request.context_tokens,
        quantization=method_of(asked.method, asked.bits, asked.backend),
        adapters=tuple(dict.fromkeys(request.adapters)),
        codec=request.codec,
    )


class StatusWriter:
    """Writes statuses with names and live figures."""

    def __init__(self, registry: Registry, gates: Gates, measuring: Measuring) -> None:
        self._registry = registry
        self._gates = gates
        self._measuring = measuring

    def of_plan(self, model_id: str, plan: Plan) -> serving_pb2.ModelStatus:
        """A plan that nothing was done with."""
        status = serving_pb2.ModelStatus(
            model_id=model_id,
            state=serving_pb2.PLACEMENT_STATE_PLANNED,
            stages=[self._stage(stage) for stage in plan.stages],
            transport=_TRANSPORTS_TO_PROTO[plan.transport],
            in_flight_max=plan.in_flight_max,
            context_tokens=plan.context_tokens,
            notes=plan.notes,
            batch_max=plan.batch_max,
            quantization=plan.quantization,
            adapters=[adapter.model_id for adapter in plan.adapters],
            predicted_tokens_per_s=plan.predicted_tokens_per_s,
            dtype=plan.dtype,
        )
        write_forecast(status, plan.forecast)
        return status

    def of_model(self, model_id: str, placement: Placement | None) -> serving_pb2.ModelStatus:
        """Where a model stands; UNSPECIFIED (not loaded) when it never was."""
        if placement is None:
            return serving_pb2.ModelStatus(model_id=model_id)
        record = placement.record
        gate = self._gates.of(placement.model_id)
        status = serving_pb2.ModelStatus(
            model_id=model_id,
            state=_STATES[placement.told_state],
            reason=record.reason,
            placement_id=record.placement_id,
            epoch=record.epoch,
            stages=[self._live_stage(placement, stage) for stage in record.stages],
            transport=_TRANSPORTS_TO_PROTO[record.transport],
            in_flight_max=record.in_flight_max,
            context_tokens=record.context_tokens,
            running=gate.running,
            waiting=gate.waiting,
            probe_lap_ms=placement.probe_lap_ms,
            notes=still_true(record.notes, {self._registry.name_of(stage.fellow_id) for stage in record.stages}),
            batch_max=record.batch_max,
            quantization=record.quantization,
            adapters=[adapter.model_id for adapter in record.adapters],
            predicted_tokens_per_s=record.predicted_tokens_per_s,
            dtype=record.dtype,
        )
        write_forecast(status, placement.forecast)
        if record.state.holds_memory:
            write_covers(status, self._registry)
            write_measured(status, self._measuring.figures(placement.model_id))
            write_measured_links(status.stages)
        return status

    def _stage(self, stage: StageRecord) -> serving_pb2.StagePlacement:
        return serving_pb2.StagePlacement(
            stage_index=stage.stage_index,
            fellow_id=stage.fellow_id,
            fellow_name=self._registry.name_of(stage.fellow_id),
            layer_start=stage.layer_start,
            layer_stop=stage.layer_stop,
            weight_bytes=stage.weight_bytes,
            kv_bytes=stage.kv_bytes,
            working_bytes=stage.working_bytes,
            free_bytes=stage.free_bytes,
            route=route_to_proto(stage.route),
            state=stage.state,
            devices=[run_to_proto(run) for run in stage.devices],
            weight_bytes_measured=stage.weight_bytes_measured,
            quantization=stage.quantization,
            codec_out=stage.codec_out,
            predicted_ms=stage.predicted_ms,
        )

    def _live_stage(self, placement: Placement, stage: StageRecord) -> serving_pb2.StagePlacement:
        written = self._stage(stage)
        live = placement.stages[stage.stage_index]
        written.step, written.done, written.total = live.step, live.done, live.total
        if live.fetched_bytes is not None:
            written.fetched_bytes = live.fetched_bytes
        if placement.state.holds_memory and not self._registry.is_connected(stage.fellow_id):
            written.state = "away"
        fellow = self._registry.get(stage.fellow_id)
        held = fellow.stages.get(placement.record.placement_id) if fellow else None
        if held is not None and held.status is not None and placement.state.holds_memory:
            written.live.CopyFrom(held.status)
        return written
