"""What a fellow says of itself to Prometheus, read anew at every scrape. Counts nothing: the parts do.

docs/observability.md has the table. A stage's figures are those of the newest heartbeat; its counters begin at 0 with
each load, and its series end with it. Read from the listener's thread: every reading is of one value that is replaced,
never changed, or of a copy.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from silentswarm.core.v1 import stage_pb2
from swarm_core.loop_lag import LAG_BUCKETS_S

_STAGE = ("model_name", "stage_index")
# Name without prefix and "_total", help, reading; None is unknown and has no sample.
StageReading = Callable[[stage_pb2.StageStatus], float | None]
_STAGE_GAUGES: tuple[tuple[str, str, StageReading], ...] = (
    ("num_sessions_running", "sessions the stage holds", lambda status: status.sessions),
    ("num_requests_waiting", "requests that wait for a place or for KV (stage 0)", lambda status: status.waiting),
    ("kv_tokens_used", "KV positions held, tokens", lambda status: status.kv_tokens_used),
    ("kv_tokens_max", "KV positions that fit, tokens", lambda status: _kv_tokens_max(status)),
    ("kv_cache_usage_perc", "share of the KV positions that is held, 0 to 1", lambda status: _kv_share(status)),
    ("stage_loaded_seconds", "since the stage was loaded, seconds", lambda status: status.loaded_s),
    (
        "stage_memory_bytes",
        "memory of the stage's process, bytes",
        lambda status: status.memory_bytes if status.HasField("memory_bytes") else None,
    ),
)
_STAGE_COUNTERS: tuple[tuple[str, str, StageReading], ...] = (
    ("stage_busy_seconds", "time the stage spent computing, seconds", lambda status: status.busy_s),
    ("generation_tokens", "tokens generated (stage 0)", lambda status: status.generated_tokens),
    ("prompt_tokens", "prompt tokens computed (stage 0)", lambda status: status.prompt_tokens),
    ("positions", "positions computed", lambda status: status.positions),
    ("requests", "replies begun (stage 0) or sessions seen", lambda status: status.requests),
    ("request_failures", "replies that failed (stage 0)", lambda status: status.failed),
    ("requests_too_long", "requests refused because they can never fit (stage 0)", lambda status: status.too_long),
    ("frames_refused", "frames refused: stale, unknown session, broken", lambda status: status.frames_refused),
    ("links_refused", "links refused: no proof, a wrong one, another's name", lambda status: status.links_refused),
)


@dataclass(frozen=True)
class FellowReadings:
    """Where the figures come from; each is called at a scrape, in another thread, and must not wait."""

    statuses: Callable[[], list[stage_pb2.StageStatus]]
    is_connected: Callable[[], bool]
    registrations: Callable[[], int]
    reply_streams_reopened: Callable[[], int]
    stage_crashes: Callable[[], int]
    fetched_bytes: Callable[[], int]
    cache_bytes: Callable[[], int]


class FellowMetrics(Collector):
    """One fellow's figures, in a registry of its own."""

    def __init__(self, readings: FellowReadings) -> None:
        self._readings = readings
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)
        self.loop_lag_s = Histogram(
            "silentswarm_fellow_event_loop_lag_seconds",
            "how much later than due the event loop ran a timer",
            buckets=LAG_BUCKETS_S,
            registry=self.registry,
        )

    def describe(self) -> Iterator[Metric]:
        """The names, without reading anything."""
        yield from self._families([])

    def collect(self) -> Iterator[Metric]:
        """One scrape."""
        readings = self._readings
        # Of two placements of one model the newer counts: a series must not come twice in one scrape.
        newest = {(status.spec.model_id, status.spec.stage_index): status for status in readings.statuses()}
        statuses = list(newest.values())
        plain = {
            "connected": float(readings.is_connected()),
            "stages": len(statuses),
            "cache_bytes": readings.cache_bytes(),
            "leader_reconnects": max(0, readings.registrations() - 1),
            "inference_link_reconnects": readings.reply_streams_reopened(),
            "stage_crashes": readings.stage_crashes(),
            "fetched_bytes": readings.fetched_bytes(),
        }
        for family in self._families(statuses):
            name = family.name.removeprefix("silentswarm_fellow_")
            if name in plain:
                family.add_metric([], plain[name])  # type: ignore[attr-defined]
            yield family

    def _families(self, statuses: list[stage_pb2.StageStatus]) -> Iterator[Metric]:
        for name, text in _GAUGES.items():
            yield GaugeMetricFamily(f"silentswarm_fellow_{name}", text)
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"silentswarm_fellow_{name}", text)
        for kind, figures in ((GaugeMetricFamily, _STAGE_GAUGES), (CounterMetricFamily, _STAGE_COUNTERS)):
            for name, text, reading in figures:
                family = kind(f"silentswarm_fellow_{name}", text, labels=_STAGE)
                for status in statuses:
                    if (value := reading(status)) is not None:
                        family.add_metric([status.spec.model_id, str(status.spec.stage_index)], value)
                yield family


_GAUGES = {
    "connected": "1 while the leader has this fellow registered",
    "stages": "stages held",
    "cache_bytes": "what the model cache takes on disk, bytes",
}
_COUNTERS = {
    "leader_reconnects": "registrations after the first",
    "inference_link_reconnects": "inference links opened again while the control link stood",
    "stage_crashes": "stages that ended though nobody asked",
    "fetched_bytes": "bytes of models that came over the network",
}


def _kv_tokens_max(status: stage_pb2.StageStatus) -> float | None:
    """What the ring admits by, else, before it is wired, what was measured to fit here."""
    if status.kv_tokens_max:
        return status.kv_tokens_max
    return status.kv_tokens_measured if status.HasField("kv_tokens_measured") else None


def _kv_share(status: stage_pb2.StageStatus) -> float | None:
    most = _kv_tokens_max(status)
    return min(1.0, status.kv_tokens_used / most) if most else None
