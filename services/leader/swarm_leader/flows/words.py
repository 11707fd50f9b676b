"""The leader's own nouns as the wire spells them, and back. No decisions."""

from silentswarm.core.v1 import stage_pb2, weights_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from swarm_leader.domain.holding import AdapterUse, DeviceRun
from swarm_leader.domain.records import PlacementRecord, Route, StageRecord

_ROUTES = {
    Route.UNKNOWN: stage_pb2.ROUTE_UNSPECIFIED,
    Route.DIRECT: stage_pb2.ROUTE_DIRECT,
    Route.RELAY: stage_pb2.ROUTE_RELAY,
    Route.LOCAL: stage_pb2.ROUTE_LOCAL,
}
_USES = {
    AdapterUse.CHOSEN: weights_pb2.ADAPTER_USE_CHOSEN,
    AdapterUse.ALWAYS: weights_pb2.ADAPTER_USE_ALWAYS,
    AdapterUse.MERGED: weights_pb2.ADAPTER_USE_MERGED,
}


def route_to_proto(route: Route) -> stage_pb2.Route:
    """core.v1.Route."""
    return _ROUTES[route]


def say_way(record: PlacementRecord) -> str:
    """How the links of a ring go, in one word of core.v1.Timing.route: "mixed" when they differ."""
    ways = {stage.route.value for stage in record.stages}
    return ways.pop() if len(ways) == 1 else "mixed"


def run_to_proto(run: DeviceRun) -> weights_pb2.DeviceRun:
    """core.v1.DeviceRun."""
    return weights_pb2.DeviceRun(
        device_index=run.device_index,
        layer_start=run.layer_start,
        layer_stop=run.layer_stop,
        weight_bytes=run.weight_bytes,
        kv_bytes=run.kv_bytes,
        working_bytes=run.working_bytes,
        free_bytes=run.free_bytes,
    )


def spec_to_proto(record: PlacementRecord, stage: StageRecord, step_costs: bool = False) -> stage_pb2.StageSpec:
    """What a fellow is told to hold. step_costs: it measures them after the load, into its log."""
    return stage_pb2.StageSpec(
        model_id=record.model_id,
        placement_id=record.placement_id,
        epoch=record.epoch,
        stage_index=stage.stage_index,
        stage_count=len(record.stages),
        layer_start=stage.layer_start,
        layer_stop=stage.layer_stop,
        dtype=record.dtype,
        context_tokens=record.context_tokens,
        kv_tokens=record.kv_tokens,
        in_flight_max=record.in_flight_max,
        manifest_sha256=record.manifest_sha256,
        batch_max=record.batch_max,
        measure_step_costs=step_costs,
        quantization=record.quantization,
        storage_dtype=record.storage_dtype,
        weights_model_id=record.weights_model_id,
        adapters=[
            weights_pb2.AdapterRef(
                model_id=adapter.model_id, manifest_sha256=adapter.manifest_sha256, use=_USES[adapter.use]
            )
            for adapter in record.adapters
        ],
        codec_in=stage.codec_in,
        codec_out=stage.codec_out,
        inner_codecs=[weights_pb2.InnerCodec(layer=one.layer, codec=one.codec) for one in stage.inner_codecs],
    )


def load_to_proto(
    record: PlacementRecord, stage: StageRecord, listen: bool, step_costs: bool = False, by_device: bool = False
) -> link_pb2.Signal:
    """The LOAD of one stage. by_device: its fellow puts layers on the devices that were planned (serve_devices)."""
    runs = [run_to_proto(run) for run in stage.devices] if by_device else []
    spec = spec_to_proto(record, stage, step_costs)
    return link_pb2.Signal(load=link_pb2.LoadSignal(spec=spec, listen=listen, device_runs=runs))
