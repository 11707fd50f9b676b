"""leader.v1.Telemetry: pools and their machines, now, over time, and what happened. Only translation."""

import asyncio
from collections.abc import AsyncIterator

import grpc
from silentswarm.leader.v1 import telemetry_pb2, telemetry_pb2_grpc
from swarm_core.clock import Clock
from swarm_core.errors import BadRequest

from swarm_leader.domain.records import MAIN_POOL
from swarm_leader.domain.telemetry_records import HOUR_S, MINUTE_S, MetricStore, NodeEvent
from swarm_leader.flows.registry import Registry
from swarm_leader.telemetry.feed import Telemetry
from swarm_leader.telemetry.grades import Grade
from swarm_leader.telemetry.pool import METRICS, NodeView, PoolView
from swarm_leader.telemetry.window import WINDOW_S

RESOLUTIONS = {"minute": MINUTE_S, "hour": HOUR_S}
DAY_S = 24 * HOUR_S
INTERVAL_S, INTERVAL_MIN_S, INTERVAL_MAX_S = 5.0, 1.0, 60.0
EVENTS, EVENTS_ANSWERED_MAX = 100, 1000


class TelemetryServicer(telemetry_pb2_grpc.TelemetryServicer):
    """Reads what telemetry keeps."""

    def __init__(self, telemetry: Telemetry, store: MetricStore, registry: Registry, clock: Clock) -> None:
        self._telemetry = telemetry
        self._store = store
        self._registry = registry
        self._clock = clock

    async def GetPoolMetrics(
        self, request: telemetry_pb2.GetPoolMetricsRequest, context: grpc.aio.ServicerContext
    ) -> telemetry_pb2.PoolMetrics:
        return pool_to_proto(self._telemetry.pool(self._pool(request.pool_id)))

    async def WatchPoolMetrics(
        self, request: telemetry_pb2.WatchPoolMetricsRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[telemetry_pb2.PoolMetrics]:
        interval_s = request.interval_s or INTERVAL_S
        if not INTERVAL_MIN_S <= interval_s <= INTERVAL_MAX_S:
            raise BadRequest(
                f"interval_s is {INTERVAL_MIN_S:g} to {INTERVAL_MAX_S:g} seconds, not {interval_s:g}",
                field="interval_s",
            )
        pool = self._pool(request.pool_id)
        while True:
            yield pool_to_proto(self._telemetry.pool(pool))
            await asyncio.sleep(interval_s)

    async def GetMetricsHistory(
        self, request: telemetry_pb2.GetMetricsHistoryRequest, context: grpc.aio.ServicerContext
    ) -> telemetry_pb2.MetricsHistory:
        if request.metric not in METRICS:
            raise BadRequest(f"no metric {request.metric[:100]!r}; there are: {', '.join(METRICS)}", field="metric")
        if request.resolution not in ("", *RESOLUTIONS):
            raise BadRequest(f"a resolution is {' or '.join(RESOLUTIONS)}", field="resolution")
        pool = self._pool(request.pool_id)
        to_s = request.to_s or int(self._clock.unix_s()) + 1
        from_s = request.from_s or to_s - (7 * DAY_S if request.resolution == "hour" else HOUR_S)
        resolution = request.resolution or ("minute" if to_s - from_s <= DAY_S else "hour")
        fellow_id = self._fellow_id(request.fellow_id)
        found = await self._store.history(pool, fellow_id, RESOLUTIONS[resolution], from_s, to_s)
        points = [
            telemetry_pb2.MetricPoint(at_s=at_s, figure=figures[request.metric])
            for at_s, figures in found
            if request.metric in figures
        ]
        return telemetry_pb2.MetricsHistory(pool_id=pool, metric=request.metric, resolution=resolution, points=points)

    async def ListPoolEvents(
        self, request: telemetry_pb2.ListPoolEventsRequest, context: grpc.aio.ServicerContext
    ) -> telemetry_pb2.ListPoolEventsResponse:
        if request.limit > EVENTS_ANSWERED_MAX:
            raise BadRequest(f"at most {EVENTS_ANSWERED_MAX} events at once", field="limit")
        pool = self._pool(request.pool_id)
        if request.before_sequence > 2**63 - 1:
            raise BadRequest("before_sequence is larger than any", field="before_sequence")
        fellow_id = self._fellow_id(request.fellow_id)
        found = await self._store.events(pool, request.limit or EVENTS, request.before_sequence, fellow_id)
        return telemetry_pb2.ListPoolEventsResponse(events=[event_to_proto(event) for event in found])

    def _pool(self, pool_id: str) -> str:
        """The pool asked for. Raises BadRequest that names those there are."""
        pools = self._telemetry.pools()
        if (pool := pool_id or MAIN_POOL) not in pools:
            raise BadRequest(f"no pool {pool[:100]!r}; there are: {', '.join(pools)}", field="pool_id")
        return pool

    def _fellow_id(self, id_or_name: str) -> str:
        """The id of a machine by its name; what is not known may be the id of one that was deleted."""
        known = (fellow for fellow in self._registry.all() if id_or_name in (fellow.fellow_id, fellow.name))
        return next((fellow.fellow_id for fellow in known), id_or_name)


def pool_to_proto(view: PoolView) -> telemetry_pb2.PoolMetrics:
    """A pool now."""
    serving = view.serving
    return telemetry_pb2.PoolMetrics(
        pool_id=view.pool,
        window_s=WINDOW_S,
        nodes=[node_to_proto(node) for node in view.nodes],
        connected=view.connected,
        availability=view.availability,
        leader_round_trip_ms=view.leader_round_trip_ms,
        serving=telemetry_pb2.ServingMetrics(
            completed=serving.completed,
            failed=serving.failed,
            tokens_per_s=serving.tokens_per_s,
            first_token_ms=serving.first_token_ms,
            first_token_p95_ms=serving.first_token_p95_ms,
            queue_ms=serving.queue_ms,
        ),
    )


def node_to_proto(node: NodeView) -> telemetry_pb2.NodeMetrics:
    """A machine now."""
    figures = node.figures
    return telemetry_pb2.NodeMetrics(
        fellow_id=node.fellow_id,
        fellow_name=node.name,
        state=node.state,
        availability=figures.availability,
        grade=grade_to_proto(node.grade),
        leader_round_trip_ms=figures.leader_round_trip_ms,
        leader_round_trip_p95_ms=figures.leader_round_trip_p95_ms,
        peer_round_trip_ms=figures.peer_round_trip_ms,
        temperature_c=figures.temperature_c,
        power_w=figures.power_w,
        busy_share=figures.busy_share,
        cpu_busy_share=figures.cpu_busy_share,
        memory_free_bytes=figures.memory_free_bytes,
        disk_free_bytes=figures.disk_free_bytes,
        reconnects=figures.reconnects,
        stage_crashes=figures.stage_crashes,
        out_of_memory=figures.out_of_memory,
        errors=figures.errors,
        slowdown=figures.slowdown,
        observed_s=figures.observed_s,
    )


def grade_to_proto(given: Grade | None) -> telemetry_pb2.Grade | None:
    """A grade; None stays absent."""
    if given is None:
        return None
    reasons = [
        telemetry_pb2.GradeReason(signal=reason.signal, points=reason.points, words=reason.words)
        for reason in given.score.reasons
    ]
    return telemetry_pb2.Grade(band=given.band, score=given.score.score, reasons=reasons)


def event_to_proto(event: NodeEvent) -> telemetry_pb2.PoolEvent:
    """Something that happened."""
    return telemetry_pb2.PoolEvent(
        sequence=event.sequence,
        at_s=event.at_s,
        fellow_id=event.fellow_id,
        fellow_name=event.fellow_name,
        kind=event.kind,
        words=event.words,
    )
