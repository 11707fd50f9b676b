"""How one model was served over the last 15 minutes. Pure: told what happened and when; bounded by its buckets."""

from collections import deque
from dataclasses import dataclass, field

from swarm_leader.domain.histogram import Histogram, Spread, spread_of

WINDOW_S = 900.0
BUCKET_S = 30.0  # the oldest falls out as a whole, so the window is up to this much shorter
BUCKETS_MAX = int(WINDOW_S / BUCKET_S)  # 100 KiB a model


@dataclass(frozen=True)
class Split:
    """Where the time of replies went, in ms: per reply, or (stage to batch_mean) per decoded token.

    In the figures of one reply, as its stage 0 measured them, and as means over many. Of a reply of one token, which it
    has from the prompt, all per token is 0 and stage_ms is empty.
    """

    queue_ms: float
    prefill_ms: float
    detokenize_ms: float
    stage_ms: tuple[float, ...]
    wait_ms: float
    link_ms: float
    sample_ms: float
    bytes_per_token: float
    batch_mean: float


@dataclass(frozen=True)
class Figures:
    """The window. tokens_per_s: over the time in which at least one reply ran; 0 when none did."""

    window_s: float
    completed: int
    failed: int
    too_long: int
    turned_away: int
    cancelled: int
    prompt_tokens: int
    generated_tokens: int
    tokens_per_s: float
    first_token: Spread | None
    inter_token: Spread | None
    split: Split | None


@dataclass
class _Bucket:
    """What happened in BUCKET_S seconds. tokens: of all replies. split: sums, per-token ones weighted by tokens."""

    start_s: float
    completed: int = 0
    failed: int = 0
    too_long: int = 0
    turned_away: int = 0
    cancelled: int = 0
    prompt_tokens: int = 0
    generated_tokens: int = 0
    tokens: int = 0
    busy_s: float = 0.0
    first_token: Histogram = field(default_factory=Histogram)
    inter_token: Histogram = field(default_factory=Histogram)
    split_replies: int = 0
    split_tokens: int = 0
    per_reply: list[float] = field(default_factory=list)
    per_token: list[float] = field(default_factory=list)


class Performance:
    """One model's window. Times are seconds of one monotonic clock and never go back."""

    def __init__(self, now_s: float) -> None:
        self._running = 0
        self._counted_s = now_s  # up to here, busy time is in the buckets
        self._stage_count = 0
        self._buckets: deque[_Bucket] = deque([_Bucket(now_s)], maxlen=BUCKETS_MAX)

    def start(self, now_s: float) -> None:
        """A reply runs: it has a place in the ring."""
        self._at(now_s)
        self._running += 1

    def stop(self, now_s: float) -> None:
        """It runs no more, however it ended."""
        self._at(now_s)
        self._running -= 1

    def first_token(self, now_s: float, after_ms: float) -> None:
        """Its first token came, this long after the request."""
        self._at(now_s).first_token.add(after_ms)

    def tokens(self, now_s: float, count: int) -> None:
        """Tokens came."""
        self._at(now_s).tokens += count

    def gap(self, now_s: float, gap_ms: float, times: int) -> None:
        """This long lay between each two of these tokens."""
        self._at(now_s).inter_token.add(gap_ms, times)

    def complete(self, now_s: float, prompt_tokens: int, generated_tokens: int, split: Split | None) -> None:
        """It ended well. split: where its time went, when its stages said so."""
        bucket = self._at(now_s)
        bucket.completed += 1
        bucket.prompt_tokens += prompt_tokens
        bucket.generated_tokens += generated_tokens
        if split is not None:
            bucket.split_replies += 1
            bucket.per_reply = _add(bucket.per_reply, [split.queue_ms, split.prefill_ms, split.detokenize_ms], 1)
            # A reply of one token decoded none: its stages say nothing of how long that takes.
            if split.stage_ms and generated_tokens > 1:
                self._add_decode(bucket, split, generated_tokens - 1)

    def fail(self, now_s: float) -> None:
        """It failed."""
        self._at(now_s).failed += 1

    def refuse_too_long(self, now_s: float) -> None:
        """It can never fit; no failure of the ring."""
        self._at(now_s).too_long += 1

    def turn_away(self, now_s: float) -> None:
        """It found no place to wait in, or no ring that serves; it may come again."""
        self._at(now_s).turned_away += 1

    def cancel(self, now_s: float) -> None:
        """Its caller went away."""
        self._at(now_s).cancelled += 1

    def figures(self, now_s: float) -> Figures:
        """The window as of now."""
        self._at(now_s)
        buckets = self._buckets
        busy_s = sum(bucket.busy_s for bucket in buckets)
        tokens = sum(bucket.tokens for bucket in buckets)
        return Figures(
            window_s=now_s - buckets[0].start_s,
            completed=sum(bucket.completed for bucket in buckets),
            failed=sum(bucket.failed for bucket in buckets),
            too_long=sum(bucket.too_long for bucket in buckets),
            turned_away=sum(bucket.turned_away for bucket in buckets),
            cancelled=sum(bucket.cancelled for bucket in buckets),
            prompt_tokens=sum(bucket.prompt_tokens for bucket in buckets),
            generated_tokens=sum(bucket.generated_tokens for bucket in buckets),
            tokens_per_s=tokens / busy_s if busy_s > 0 else 0.0,
            first_token=spread_of([bucket.first_token for bucket in buckets]),
            inter_token=spread_of([bucket.inter_token for bucket in buckets]),
            split=self._split(),
        )

    def _at(self, now_s: float) -> _Bucket:
        """The bucket of now, with the busy time up to now in it and in those before."""
        if now_s >= self._buckets[-1].start_s + BUCKET_S:
            self._turn(now_s)
        bucket = self._buckets[-1]
        if self._running:
            bucket.busy_s += now_s - self._counted_s
        self._counted_s = now_s
        return bucket

    def _turn(self, now_s: float) -> None:
        """Begin the buckets up to now; the oldest fall out. After a long silence only those that stay are made."""
        first_s = self._buckets[-1].start_s
        steps = int((now_s - first_s) // BUCKET_S)
        for step in range(max(0, steps - BUCKETS_MAX) + 1, steps + 1):
            start_s = first_s + step * BUCKET_S
            if self._running:
                self._buckets[-1].busy_s += start_s - self._counted_s
            self._counted_s = start_s
            self._buckets.append(_Bucket(start_s))

    def _add_decode(self, bucket: _Bucket, split: Split, decoded: int) -> None:
        """Add one reply's times per token to the sums. A ring of another length makes the old ones meaningless."""
        if len(split.stage_ms) != self._stage_count:
            self._stage_count = len(split.stage_ms)
            for old in self._buckets:
                old.split_tokens, old.per_token = 0, []
        token = [
            split.wait_ms,
            split.link_ms,
            split.sample_ms,
            split.bytes_per_token,
            split.batch_mean,
            *split.stage_ms,
        ]
        bucket.split_tokens += decoded
        bucket.per_token = _add(bucket.per_token, token, decoded)

    def _split(self) -> Split | None:
        replies = sum(bucket.split_replies for bucket in self._buckets)
        if not replies:
            return None
        decoded = sum(bucket.split_tokens for bucket in self._buckets)
        per_reply, per_token = [0.0] * 3, [0.0] * (5 + (self._stage_count if decoded else 0))
        for bucket in self._buckets:
            if bucket.split_replies:
                per_reply = _add(per_reply, bucket.per_reply, 1 / replies)
            if bucket.split_tokens:
                per_token = _add(per_token, bucket.per_token, 1 / decoded)
        queue_ms, prefill_ms, detokenize_ms = per_reply
        wait_ms, link_ms, sample_ms, bytes_per_token, batch_mean, *stage_ms = per_token
        return Split(
            queue_ms=queue_ms,
            prefill_ms=prefill_ms,
            detokenize_ms=detokenize_ms,
            stage_ms=tuple(stage_ms),
            wait_ms=wait_ms,
            link_ms=link_ms,
            sample_ms=sample_ms,
            bytes_per_token=bytes_per_token,
            batch_mean=batch_mean,
        )


def _add(sums: list[float], figures: list[float], weight: float) -> list[float]:
    return [one + weight * other for one, other in zip(sums or [0.0] * len(figures), figures, strict=True)]
