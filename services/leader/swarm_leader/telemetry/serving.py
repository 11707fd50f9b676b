"""How replies of a pool went, over the last ones. Pure: times are the caller's; every note is O(1)."""

from collections import deque
from dataclasses import dataclass

from swarm_leader.telemetry.window import WINDOW_S, median, percentile

REPLIES_MAX = 1024
LATELY_S = 60.0


@dataclass(frozen=True)
class Reply:
    """One that ended. first_token_ms, queue_ms: None when it never came so far. stage_ms: compute of one token."""

    is_failed: bool
    tokens: int = 0
    first_token_ms: float | None = None
    queue_ms: float | None = None
    stage_ms: tuple[float, ...] = ()


@dataclass(frozen=True)
class ServingFigures:
    """Of the window; tokens_per_s of its last minute. None is unknown."""

    completed: int
    failed: int
    tokens_per_s: float
    first_token_ms: float | None
    first_token_p95_ms: float | None
    queue_ms: float | None


class ServingWindow:
    """The replies of one pool."""

    def __init__(self) -> None:
        self._replies: deque[tuple[float, Reply]] = deque(maxlen=REPLIES_MAX)

    def note(self, now_s: float, reply: Reply) -> None:
        """One ended."""
        self._replies.append((now_s, reply))

    def figures(self, now_s: float, window_s: float = WINDOW_S) -> ServingFigures:
        """How they went within the window."""
        recent = [(at_s, reply) for at_s, reply in self._replies if at_s > now_s - window_s]
        replies = [reply for _, reply in recent]
        lately = [(at_s, reply.tokens) for at_s, reply in recent if at_s > now_s - LATELY_S]
        # When the memory is full of the last seconds, they are all there is to go by.
        is_cut = len(self._replies) == REPLIES_MAX and len(lately) == REPLIES_MAX
        span_s = max(1.0, now_s - lately[0][0]) if is_cut else LATELY_S
        first_ms = [reply.first_token_ms for reply in replies]
        return ServingFigures(
            completed=sum(not reply.is_failed for reply in replies),
            failed=sum(reply.is_failed for reply in replies),
            tokens_per_s=sum(tokens for _, tokens in lately) / span_s,
            first_token_ms=median(first_ms),
            first_token_p95_ms=percentile(first_ms, 0.95),
            queue_ms=median(reply.queue_ms for reply in replies),
        )
