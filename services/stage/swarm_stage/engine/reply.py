"""One reply as stage 0 sees it: what was asked, how far it is, where its time went. Pure state."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from silentswarm.core.v1 import generation_pb2
from silentswarm.ring.v1 import ring_pb2
from swarm_core.errors import SwarmError


@dataclass(frozen=True)
class Admitted:
    """The reply may start."""

    prompt_tokens: int


@dataclass(frozen=True)
class Tokens:
    """Tokens that came; empty when only a prompt piece went round (a sign of life)."""

    ids: tuple[int, ...]


@dataclass(frozen=True)
class Finished:
    """The reply is complete."""

    reason: generation_pb2.FinishReason
    completion_tokens: int
    timing: generation_pb2.Timing


@dataclass(frozen=True)
class Broke:
    """The reply failed."""

    error: SwarmError


@dataclass(frozen=True)
class Lap:
    """A probe came back, with what every later stage said of itself and what the last one drew."""

    traces: tuple[ring_pb2.Trace, ...]
    tokens: tuple[int, ...]


Note = Admitted | Tokens | Finished | Broke | Lap


@dataclass(frozen=True)
class Request:
    """What is asked. notify is called from the engine thread and must not block.

    end_ids: tokens that end the reply. new_tokens_max: at least 1.
    """

    request_id: str
    prompt_ids: tuple[int, ...]
    sampling: generation_pb2.Sampling
    new_tokens_max: int
    end_ids: frozenset[int]
    notify: Callable[[Note], None]
    arrived_s: float
    probe: bool = False


@dataclass
class ReplyTimes:
    """Durations of one reply, all on stage 0's clock except the compute each stage measured itself."""

    admitted_s: float = 0.0
    first_token_s: float | None = None
    last_token_s: float | None = None
    stage_us: list[int] = field(default_factory=list)
    decode_bytes: int = 0
    answer_bytes: int = 0  # of the answer being taken


@dataclass
class Reply:
    """A running reply."""

    request: Request
    session: int
    prompt_sent: int = 0
    due: deque[int] = field(default_factory=deque)  # positions in the ring whose answers are awaited, in order
    generated: list[int] = field(default_factory=list)
    times: ReplyTimes = field(default_factory=ReplyTimes)

    @property
    def is_prefilling(self) -> bool:
        """Part of the prompt is still to be sent."""
        return self.prompt_sent < len(self.request.prompt_ids)

    @property
    def next_pos(self) -> int:
        """Where the newest token stands."""
        return len(self.request.prompt_ids) + len(self.generated) - 1

    def finish_reason(self) -> generation_pb2.FinishReason:
        """Why it is over after its newest token; UNSPECIFIED while it goes on."""
        if self.generated and self.generated[-1] in self.request.end_ids:
            return generation_pb2.FINISH_REASON_STOP
        if len(self.generated) >= self.request.new_tokens_max:
            return generation_pb2.FINISH_REASON_LENGTH
        return generation_pb2.FINISH_REASON_UNSPECIFIED


def timing_of(reply: Reply, route: str) -> generation_pb2.Timing:
    """The reply's timing. link_ms is what a decoded token took beyond all compute."""
    times, request = reply.times, reply.request
    decoded = max(0, len(reply.generated) - 1)
    first_s = times.first_token_s if times.first_token_s is not None else times.admitted_s
    decode_ms = ((times.last_token_s or first_s) - first_s) * 1e3
    stage_ms = [us / 1e3 / decoded for us in times.stage_us] if decoded else []
    return generation_pb2.Timing(
        queue_ms=(times.admitted_s - request.arrived_s) * 1e3,
        prefill_ms=(first_s - times.admitted_s) * 1e3,
        decode_ms=decode_ms,
        stage_ms=stage_ms,
        link_ms=max(0.0, decode_ms / decoded - sum(stage_ms)) if decoded else 0.0,
        bytes_per_token=times.decode_bytes / decoded if decoded else 0.0,
        route=route,
    )
