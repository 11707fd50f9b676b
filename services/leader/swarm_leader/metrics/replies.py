"""Counters and histograms of replies, by model. The names and buckets are vLLM's, so that its dashboards fit."""

from prometheus_client import CollectorRegistry, Counter, Histogram
from swarm_core.errors import Reason

FIRST_TOKEN_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160)
INTER_TOKEN_S = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
REQUEST_S = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960)
FINISH_REASONS = ("stop", "length", "abort")
_DURATIONS = {
    "time_to_first_token": ("From a request's arrival at the leader to its first token.", FIRST_TOKEN_S),
    "inter_token_latency": ("Between two tokens of a reply.", INTER_TOKEN_S),
    "e2e_request_latency": ("From a request's arrival to the end of its reply, replies that ended well.", REQUEST_S),
    "request_queue_time": ("From a request's arrival to its start at stage 0.", REQUEST_S),
    "request_prefill_time": ("From the start at stage 0 to the first token.", REQUEST_S),
    "request_decode_time": ("From the first token to the end.", REQUEST_S),
}


class ModelSeries:
    """The series of one model; looking them up by label for every token would cost more than counting it."""

    def __init__(self, metrics: "ReplyMetrics", model_id: str) -> None:
        durations = {name: histogram.labels(model_id) for name, histogram in metrics.durations.items()}
        self.first_token_s = durations["time_to_first_token"]
        self.inter_token_s = durations["inter_token_latency"]
        self.e2e_s = durations["e2e_request_latency"]
        self.queue_s = durations["request_queue_time"]
        self.prefill_s = durations["request_prefill_time"]
        self.decode_s = durations["request_decode_time"]
        self.prompt_tokens = metrics.prompt_tokens.labels(model_id)
        self.generation_tokens = metrics.generation_tokens.labels(model_id)
        self._success = {reason: metrics.success.labels(model_id, reason) for reason in FINISH_REASONS}
        self._failure = metrics.failure
        self._model_id = model_id

    def succeed(self, finish_reason: str) -> None:
        """A reply ended well, or ("abort") its caller left. A reason that is not known counts as "stop"."""
        self._success.get(finish_reason, self._success["stop"]).inc()

    def fail(self, reason: Reason) -> None:
        """A request failed or was refused."""
        self._failure.labels(self._model_id, reason.value).inc()


class ReplyMetrics:
    """All models. The models are those that were placed, so their number is the operator's to bound."""

    def __init__(self, registry: CollectorRegistry) -> None:
        model = ["model_name"]
        self.durations = {
            name: Histogram(f"silentswarm_{name}_seconds", words, model, buckets=buckets, registry=registry)
            for name, (words, buckets) in _DURATIONS.items()
        }
        self.prompt_tokens = Counter(
            "silentswarm_prompt_tokens", "Prompt tokens of replies that started.", model, registry=registry
        )
        self.generation_tokens = Counter("silentswarm_generation_tokens", "Tokens generated.", model, registry=registry)
        self.success = Counter(
            "silentswarm_request_success",
            "Replies that ended without an error; abort: the caller left.",
            [*model, "finished_reason"],
            registry=registry,
        )
        self.failure = Counter(
            "silentswarm_request_failure",
            "Requests that failed or were refused; CONTEXT_TOO_LONG can never fit.",
            [*model, "reason"],
            registry=registry,
        )
        self._models: dict[str, ModelSeries] = {}

    def of(self, model_id: str) -> ModelSeries:
        """A model's series, made when it is first asked for."""
        series = self._models.get(model_id)
        if series is None:
            series = self._models[model_id] = ModelSeries(self, model_id)
        return series
