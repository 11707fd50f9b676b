"""Durations counted in buckets that grow by a constant factor, so that percentiles cost no memory. Pure."""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

GROWTH = 1.05
ERROR = math.sqrt(GROWTH) - 1  # a percentile is off by at most this share of itself, 2.5 %
LEAST_MS = 0.01
MOST_MS = 3_600_000.0
_PER_LOG = 1 / math.log(GROWTH)
BUCKETS = math.ceil(math.log(MOST_MS / LEAST_MS) * _PER_LOG) + 1


@dataclass(frozen=True)
class Spread:
    """Of 100 durations, 50, 95 and 99 are at most this, in ms, within ERROR."""

    p50_ms: float
    p95_ms: float
    p99_ms: float


class Histogram:
    """Counts of durations. Those below LEAST_MS or above MOST_MS count as that; 1.6 KiB."""

    def __init__(self) -> None:
        self.counts = array("I", [0]) * BUCKETS

    def add(self, duration_ms: float, times: int = 1) -> None:
        """Count a duration, `times` times."""
        bucket = int(math.log(duration_ms / LEAST_MS) * _PER_LOG) if duration_ms > LEAST_MS else 0
        self.counts[min(bucket, BUCKETS - 1)] += times


def spread_of(histograms: Sequence[Histogram]) -> Spread | None:
    """The spread over all of them together; None when nothing was counted."""
    counts = [sum(column) for column in zip(*(histogram.counts for histogram in histograms), strict=True)]
    total = sum(counts)
    if not total:
        return None
    return Spread(*(_percentile_ms(counts, math.ceil(total * share)) for share in (0.5, 0.95, 0.99)))


def _percentile_ms(counts: Sequence[int], rank: int) -> float:
    """The geometric middle of the bucket that the duration of this rank (from 1) is in."""
    seen = 0
    for bucket, count in enumerate(counts):
        seen += count
        if seen >= rank:
            return LEAST_MS * GROWTH ** (bucket + 0.5)
    raise AssertionError("a rank is never beyond the total")
