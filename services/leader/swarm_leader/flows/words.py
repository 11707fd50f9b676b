"""The leader's own nouns as the wire spells them, and back. No decisions."""

from silentswarm.core.v1 import stage_pb2
from silentswarm.fellow.v1 import fellow_link_pb2 as link_pb2

from swarm_leader.domain.records import PlacementRecord, Route, StageRecord

_ROUTES = {
    Route.UNKNOWN: stage_pb2.ROUTE_UNSPECIFIED,
    Route.DIRECT: stage_pb2.ROUTE_DIRECT,
    Route.RELAY: stage_pb2.ROUTE_RELAY,
    Route.LOCAL: stage_pb2.ROUTE_LOCAL,
}


def route_to_proto(route: Route) -> stage_pb2.Route:
    """core.v1.Route."""
    return _ROUTES[route]


def say_way(record: PlacementRecord) -> str:
    """How the links of a ring go, in one word of core.v1.Timing.route: "mixed" when they differ."""
    ways = {stage.route.value for stage in record.stages}
    return ways.pop() if len(ways) == 1 else "mixed"


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
    )


def load_to_proto(
    record: PlacementRecord, stage: StageRecord, listen: bool, step_costs: bool = False
) -> link_pb2.Signal:
    """The LOAD of one stage."""
    return link_pb2.Signal(load=link_pb2.LoadSignal(spec=spec_to_proto(record, stage, step_costs), listen=listen))
