"""What is measured of replies, on the leader's own clock: fed event by event, kept for 15 minutes and for Prometheus.

Changes no reply: it is told what happened and returns nothing. A token costs 6 us of CPU.
"""

from collections.abc import Callable

from silentswarm.core.v1 import generation_pb2
from swarm_core.clock import Clock
from swarm_core.errors import Reason, SwarmError

from swarm_leader.domain.performance import Figures, Performance, Split
from swarm_leader.metrics.replies import ModelSeries, ReplyMetrics
from swarm_leader.telemetry.serving import Reply

_FINISHED = {generation_pb2.FINISH_REASON_STOP: "stop", generation_pb2.FINISH_REASON_LENGTH: "length"}
# What a caller did to itself says nothing of how the model was served; CONTEXT_TOO_LONG is counted apart.
_CALLERS_OWN = (Reason.BAD_REQUEST, Reason.CONFLICT)
# Before it had a place in the ring: no reply was begun that could fail. With a place both are failures of the ring.
_TURNED_AWAY = (Reason.OVERLOADED, Reason.MODEL_NOT_READY)
TOGETHER_MAX = 64  # tokens of one event that Prometheus hears of; a ring draws far fewer, a fellow may claim any number


class Measuring:
    """Every model that was placed since the leader started."""

    def __init__(
        self, metrics: ReplyMetrics, clock: Clock, on_reply: Callable[[str, Reply], None] = lambda model_id, reply: None
    ) -> None:
        """on_reply: told of every reply that ended well or failed, by the model that was placed; must not raise."""
        self.on_reply = on_reply
        self._metrics = metrics
        self._clock = clock
        self._began_s = clock.monotonic_s()
        self._windows: dict[str, Performance] = {}

    def reply(self) -> "ReplyMeter":
        """A request arrived."""
        return ReplyMeter(self, self._clock)

    def window_of(self, model_id: str) -> Performance:
        """The model's window; like every other it reaches back to the start of the leader, or 15 minutes."""
        window = self._windows.get(model_id)
        if window is None:
            window = self._windows[model_id] = Performance(self._began_s)
        return window

    def series_of(self, model_id: str) -> ModelSeries:
        """The model's series."""
        return self._metrics.of(model_id)

    def figures(self, model_id: str) -> Figures:
        """The last 15 minutes."""
        window = self._windows.get(model_id) or Performance(self._began_s)
        return window.figures(self._clock.monotonic_s())


class ReplyMeter:
    """One request, from its arrival to its one end. What comes before `take_model` is counted nowhere."""

    def __init__(self, measuring: Measuring, clock: Clock) -> None:
        self._measuring = measuring
        self._clock = clock
        self._arrived_s = clock.monotonic_s()
        self._windows: tuple[Performance, ...] = ()
        self._series: ModelSeries | None = None
        self._model_id = ""
        self._placed_s: float | None = None
        self._started_s: float | None = None
        self._first_s: float | None = None
        self._last_s = 0.0

    def take_model(self, model_id: str, adapter: str = "") -> None:
        """It asks for a model that was placed, or for an adapter of it.

        An adapter's replies count in its own window and in that of the ring they ran in; in the series, which are
        summed up, under its own name alone.
        """
        names = (model_id, adapter) if adapter else (model_id,)
        self._model_id = model_id
        self._windows = tuple(self._measuring.window_of(name) for name in names)
        self._series = self._measuring.series_of(names[-1])

    def take_place(self) -> None:
        """It has a place in the ring."""
        self._placed_s = self._clock.monotonic_s()
        for window in self._windows:
            window.start(self._placed_s)

    def take_event(self, event: generation_pb2.GenerationEvent, kind: str | None) -> None:
        """An event of the reply came. kind: event.WhichOneof("event")."""
        if self._series is None:
            return
        now_s = self._clock.monotonic_s()
        if kind == "tokens":
            self._take_tokens(self._series, now_s, len(event.tokens.ids))
        elif kind == "started":
            self._started_s = now_s
            self._series.queue_s.observe(now_s - self._arrived_s)
            self._series.prompt_tokens.inc(event.started.prompt_tokens)
        elif kind == "done":
            self._take_done(self._series, now_s, event.done)

    def take_failure(self, error: SwarmError) -> None:
        """It failed, was refused, or (Cancelled) its caller went away."""
        if self._series is None:
            return
        if error.why is Reason.CANCELLED:
            self.take_cancel()
            return
        now_s = self._clock.monotonic_s()
        for window in self._windows:
            if error.why is Reason.CONTEXT_TOO_LONG:
                window.refuse_too_long(now_s)
            elif error.why in _TURNED_AWAY and self._placed_s is None:
                window.turn_away(now_s)
            elif error.why not in _CALLERS_OWN:
                window.fail(now_s)
        if self._placed_s is not None and error.why not in (*_CALLERS_OWN, Reason.CONTEXT_TOO_LONG):
            self._tell(
                Reply(True, queue_ms=self._since_ms(self._placed_s), first_token_ms=self._since_ms(self._first_s))
            )
        self._series.fail(error.why)
        self._end(now_s)

    def take_cancel(self) -> None:
        """Its caller went away. Harmless after its end."""
        if self._series is not None:
            now_s = self._clock.monotonic_s()
            for window in self._windows:
                window.cancel(now_s)
            self._series.succeed("abort")
            self._end(now_s)

    def _take_tokens(self, series: ModelSeries, now_s: float, count: int) -> None:
        """Tokens that came together lay evenly between the event before and this one, as far as can be told."""
        if not count:
            return
        if self._first_s is None:
            self._first_s = now_s
            series.first_token_s.observe(now_s - self._arrived_s)
            for window in self._windows:
                window.first_token(now_s, (now_s - self._arrived_s) * 1e3)
            if self._started_s is not None:
                series.prefill_s.observe(now_s - self._started_s)
        else:
            gap_s = (now_s - self._last_s) / count
            for window in self._windows:
                window.gap(now_s, gap_s * 1e3, count)
            for _ in range(min(count, TOGETHER_MAX)):
                series.inter_token_s.observe(gap_s)
        self._last_s = now_s
        for window in self._windows:
            window.tokens(now_s, count)
        series.generation_tokens.inc(count)

    def _take_done(self, series: ModelSeries, now_s: float, done: generation_pb2.GenerationEvent.Done) -> None:
        waited_ms = ((self._placed_s or now_s) - self._arrived_s) * 1e3
        for window in self._windows:
            window.complete(now_s, done.prompt_tokens, done.completion_tokens, _split_of(done.timing, waited_ms))
        series.succeed(_FINISHED.get(done.finish_reason, ""))
        series.e2e_s.observe(now_s - self._arrived_s)
        if self._first_s is not None:
            series.decode_s.observe(now_s - self._first_s)
        times = {"queue_ms": waited_ms, "first_token_ms": self._since_ms(self._first_s)}
        self._tell(Reply(False, done.completion_tokens, stage_ms=tuple(done.timing.stage_ms), **times))
        self._end(now_s)

    def _tell(self, reply: Reply) -> None:
        self._measuring.on_reply(self._model_id, reply)

    def _since_ms(self, at_s: float | None) -> float | None:
        """From its arrival until then."""
        return None if at_s is None else (at_s - self._arrived_s) * 1e3

    def _end(self, now_s: float) -> None:
        """It has its one end: nothing more counts."""
        if self._placed_s is not None:
            for window in self._windows:
                window.stop(now_s)
        self._windows, self._series = (), None


def _split_of(timing: generation_pb2.Timing, waited_ms: float) -> Split | None:
    """Where stage 0 says the time went, with what the leader knows of the wait; None when it does not say."""
    if not timing.stage_ms and not timing.prefill_ms:
        return None
    return Split(
        queue_ms=waited_ms + timing.queue_ms,
        prefill_ms=timing.prefill_ms,
        detokenize_ms=timing.detokenize_ms,
        stage_ms=tuple(timing.stage_ms),
        wait_ms=timing.wait_ms,
        link_ms=timing.link_ms,
        sample_ms=timing.sample_ms,
        bytes_per_token=timing.bytes_per_token,
        batch_mean=timing.batch_mean,
    )
