"""Where the time of one reply went, from stage 0's clock and the traces of its answers. Pure state."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from silentswarm.core.v1 import generation_pb2
from silentswarm.ring.v1 import ring_pb2


@dataclass
class ReplyTimes:
    """Readings on stage 0's clock, and sums of what every stage measured itself, in microseconds.

    A decoded token's time runs from the arrival of the one before it to its own: waiting here, compute, links and
    waiting elsewhere, sampling. The last one's runs until the engine took it.
    """

    admitted_s: float = 0.0
    first_token_s: float | None = None
    last_token_s: float = 0.0
    answered_s: float = 0.0  # arrival of the newest answer
    decoded: int = 0  # tokens behind the first
    sessions_sum: int = 0  # of the decode steps they came from
    prefill_us: list[int] = field(default_factory=list)  # per stage, the whole prompt
    stage_us: list[int] = field(default_factory=list)  # per stage, decoded tokens
    wait_us: int = 0
    sample_us: int = 0
    bytes_sent: int = 0

    def note_piece(self, traces: Sequence[ring_pb2.Trace], arrived_s: float) -> None:
        """A prompt piece came round."""
        self.answered_s = arrived_s
        self.prefill_us = _added(self.prefill_us, traces)

    def note_first_token(self, arrived_s: float) -> None:
        """The prompt's last piece brought a token."""
        self.first_token_s = self.last_token_s = arrived_s

    def note_token(self, traces: Sequence[ring_pb2.Trace], arrived_s: float, answer_bytes: int, sessions: int) -> None:
        """A decode step of so many sessions brought a token; answer_bytes crossed the last link."""
        self.answered_s = self.last_token_s = arrived_s
        self.decoded += 1
        self.sessions_sum += sessions
        self.stage_us = _added(self.stage_us, traces)
        self.bytes_sent += answer_bytes
        for trace in traces:
            self.wait_us += trace.wait_us
            self.sample_us += trace.sample_us
            self.bytes_sent += trace.received_bytes

    def note_end(self, now_s: float) -> None:
        """The engine took the last token."""
        if self.decoded:
            self.wait_us += int((now_s - self.last_token_s) * 1e6)
            self.last_token_s = now_s
        else:
            self.first_token_s = now_s

    def to_timing(self, asked_s: float, route: str) -> generation_pb2.Timing:
        """The timing of a reply asked for at asked_s. link_ms is what is left of a decoded token's time."""
        first_s = self.first_token_s if self.first_token_s is not None else self.admitted_s
        decode_ms = max(0.0, self.last_token_s - first_s) * 1e3 if self.decoded else 0.0
        share = 1 / 1e3 / self.decoded if self.decoded else 0.0
        stage_ms = [us * share for us in self.stage_us]
        wait_ms, sample_ms = self.wait_us * share, self.sample_us * share
        known_ms = sum(stage_ms) + wait_ms + sample_ms
        return generation_pb2.Timing(
            queue_ms=(self.admitted_s - asked_s) * 1e3,
            prefill_ms=(first_s - self.admitted_s) * 1e3,
            decode_ms=decode_ms,
            stage_ms=stage_ms,
            link_ms=max(0.0, decode_ms / self.decoded - known_ms) if self.decoded else 0.0,
            bytes_per_token=self.bytes_sent / self.decoded if self.decoded else 0.0,
            route=route,
            sample_ms=sample_ms,
            wait_ms=wait_ms,
            prefill_stage_ms=[us / 1e3 for us in self.prefill_us],
            batch_mean=self.sessions_sum / self.decoded if self.decoded else 0.0,
        )


def _added(sums_us: list[int], traces: Sequence[ring_pb2.Trace]) -> list[int]:
    if not sums_us:
        return [trace.compute_us for trace in traces]
    return [total + trace.compute_us for total, trace in zip(sums_us, traces, strict=False)]
