"""What the gateway counts for Prometheus: requests, streams, and replies as their readers see them. Decides nothing.

docs/observability.md has the table. Labels are bounded: routes are templates, models are those the leader admitted.
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from silentswarm.core.v1 import generation_pb2
from swarm_core.loop_lag import LAG_BUCKETS_S

MODELS_MAX = 16  # names that get series of their own, about 0.6 ms of a scrape each; further ones share one
OTHER_MODELS = "other"
Seconds = Callable[[], float]
_FIRST_BUCKETS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640)
_BETWEEN_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 10, 30)


class GatewayMetrics:
    """One gateway's figures, in a registry of its own. now_s: a clock that only grows."""

    def __init__(self, now_s: Seconds) -> None:
        self.registry = CollectorRegistry()
        self.now_s = now_s
        self._models: set[str] = set()
        model = ("model_name",)
        ProcessCollector(registry=self.registry)
        self.requests = Counter(
            "silentswarm_gateway_http_requests",
            "HTTP requests answered",
            ("route", "status_class"),
            registry=self.registry,
        )
        self.running = Gauge(
            "silentswarm_gateway_http_requests_in_flight", "HTTP requests in work", registry=self.registry
        )
        self.streams = Gauge(
            "silentswarm_gateway_streams_in_flight", "chat streams whose headers are sent", registry=self.registry
        )
        self.readers_gone = Counter(
            "silentswarm_gateway_readers_gone", "clients that left before their reply was whole", registry=self.registry
        )
        self.replies = Counter(
            "silentswarm_gateway_replies",
            "chat replies, by how they ended",
            (*model, "finished_reason"),
            registry=self.registry,
        )
        self.prompt_tokens = Counter(
            "silentswarm_gateway_prompt_tokens", "prompt tokens of admitted replies", model, registry=self.registry
        )
        self.generation_tokens = Counter(
            "silentswarm_gateway_generation_tokens",
            "tokens that arrived from the leader",
            model,
            registry=self.registry,
        )
        self.first_token_s = Histogram(
            "silentswarm_gateway_time_to_first_token_seconds",
            "from the request's arrival to its first text on the wire, streams only",
            model,
            buckets=_FIRST_BUCKETS_S,
            registry=self.registry,
        )
        self.inter_token_s = Histogram(
            "silentswarm_gateway_inter_token_latency_seconds",
            "between two texts of a stream on the wire",
            model,
            buckets=_BETWEEN_BUCKETS_S,
            registry=self.registry,
        )
        self.loop_lag_s = Histogram(
            "silentswarm_gateway_event_loop_lag_seconds",
            "how much later than due the event loop ran a timer",
            buckets=LAG_BUCKETS_S,
            registry=self.registry,
        )

    def text(self) -> bytes:
        """Everything, in Prometheus' text format."""
        return generate_latest(self.registry)

    def answered(self, route: str, status: int) -> None:
        """One HTTP request ended. route: its template, or "" when nothing lives there."""
        self.requests.labels(route or "none", f"{status // 100}xx").inc()

    def reply(self) -> "ReplyMeter":
        """Begin to measure one reply; its time to first token counts from now."""
        return ReplyMeter(self)

    def model_label(self, model_id: str) -> str:
        """The model's name while there are few, so that no client can make series without end."""
        if model_id in self._models or len(self._models) < MODELS_MAX:
            self._models.add(model_id)
            return model_id
        return OTHER_MODELS


class ReplyMeter:
    """One chat reply, as its reader sees it. Counts under a model's name only once the leader admitted it."""

    def __init__(self, metrics: GatewayMetrics) -> None:
        self._metrics = metrics
        self._arrived_s = metrics.now_s()
        self._said_s: float | None = None
        self._is_ended = False
        self._label: str | None = None

    def started(self, model_id: str, prompt_tokens: int) -> None:
        """The leader admitted it."""
        metrics = self._metrics
        label = self._label = metrics.model_label(model_id)
        metrics.prompt_tokens.labels(label).inc(prompt_tokens)
        self._first = metrics.first_token_s.labels(label)
        self._between = metrics.inter_token_s.labels(label)
        self._tokens = metrics.generation_tokens.labels(label)

    def tokens(self, count: int) -> None:
        """Tokens came."""
        if self._label is not None:
            self._tokens.inc(count)

    def said(self) -> None:
        """Text was written to the reader."""
        now_s = self._metrics.now_s()
        if self._label is not None:
            if self._said_s is None:
                self._first.observe(now_s - self._arrived_s)
            else:
                self._between.observe(now_s - self._said_s)
        self._said_s = now_s

    def done(self, finish_reason: int) -> None:
        """It ended well."""
        self._end("length" if finish_reason == generation_pb2.FINISH_REASON_LENGTH else "stop")

    def failed(self) -> None:
        """It was refused or broke off; a second call changes nothing."""
        self._end("error")

    def gone(self) -> None:
        """Its reader left, or did not read; a second call changes nothing."""
        if self._is_ended:
            return
        self._metrics.readers_gone.inc()
        self._end("abort")

    def _end(self, reason: str) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._metrics.replies.labels(self._label or "", reason).inc()
