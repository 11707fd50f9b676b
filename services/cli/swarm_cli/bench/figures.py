"""What a benchmark's samples come to: percentiles, rates, failures, the server's own split. Pure arithmetic."""

import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from swarm_cli.bench.sample import CUT, Sample

# Parts of a whole reply, and of one decoded token, in the order in which they are shown; stages come in between.
REPLY_PARTS = ("queue_ms", "prefill_ms", "decode_ms", "total_ms")
TOKEN_PARTS = ("sample_ms", "wait_ms", "link_ms")


@dataclass(frozen=True)
class Spread:
    """How durations spread, in ms; the nearest measured one each."""

    p50: float
    p95: float
    p99: float
    most: float


@dataclass(frozen=True)
class Figures:
    """A benchmark's result.

    first_token, between: None when there was none to measure. between counts the time between two events with text,
    longest_gap_ms is its most. tokens_per_s: all together, from the first request to the last end.
    stream_tokens_per_s: the median reply's, from its first to its last event. server: means of swarm.timing over whole
    replies. routes: how many went which way.
    """

    requests: int
    whole: int
    cut: int
    failures: dict[str, int]
    duration_s: float
    prompt_tokens_mean: float
    new_tokens: int
    tokens_per_s: float
    prompt_tokens_per_s: float
    stream_tokens_per_s: float | None
    first_token: Spread | None
    between: Spread | None
    server: dict[str, float]
    routes: dict[str, int]

    @property
    def longest_gap_ms(self) -> float | None:
        """The longest silence within a reply."""
        return self.between.most if self.between else None


def figures_of(samples: Sequence[Sample]) -> Figures:
    """Everything at once; samples may be empty."""
    whole = [sample for sample in samples if sample.is_whole]
    told = [sample for sample in samples if sample.text_s]
    failures = Counter(sample.failure for sample in samples if sample.failure not in ("", CUT))
    duration_s = _duration_s(samples)
    tokens = sum(sample.tokens for sample in told)
    prompts = [sample.prompt_tokens for sample in whole]
    rates = [rate for sample in told if (rate := stream_rate(sample)) is not None]
    return Figures(
        requests=len(samples),
        whole=len(whole),
        cut=sum(1 for sample in samples if sample.failure == CUT),
        failures=dict(failures.most_common()),
        duration_s=duration_s,
        prompt_tokens_mean=statistics.fmean(prompts) if prompts else 0.0,
        new_tokens=tokens,
        tokens_per_s=tokens / duration_s if duration_s else 0.0,
        prompt_tokens_per_s=sum(prompts) / duration_s if duration_s else 0.0,
        stream_tokens_per_s=statistics.median(rates) if rates else None,
        first_token=spread_of((sample.text_s[0] - sample.sent_s) * 1e3 for sample in told),
        between=spread_of(gap * 1e3 for sample in told for gap in gaps_s(sample)),
        server=server_means([sample for sample in whole if sample.timing]),
        routes=dict(Counter(str(sample.timing["route"]) for sample in whole if sample.timing.get("route"))),
    )


def gaps_s(sample: Sample) -> list[float]:
    """Between one event with text and the next, seconds."""
    return [after - before for before, after in pairwise(sample.text_s)]


def stream_rate(sample: Sample) -> float | None:
    """Tokens per second of one reply after its first; None for one too short to tell."""
    if len(sample.text_s) < 2 or sample.text_s[-1] <= sample.text_s[0]:
        return None
    return (sample.tokens - 1) / (sample.text_s[-1] - sample.text_s[0])


def spread_of(values: Iterable[float]) -> Spread | None:
    """Percentiles; None for no values."""
    ordered = sorted(values)
    if not ordered:
        return None
    return Spread(percentile(ordered, 0.50), percentile(ordered, 0.95), percentile(ordered, 0.99), ordered[-1])


def percentile(ordered: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0..1) of the ascending values do not exceed."""
    rank = -(-len(ordered) * round(share * 1000) // 1000)  # ceil, in whole thousandths
    return ordered[max(0, rank - 1)]


def server_means(samples: Sequence[Sample]) -> dict[str, float]:
    """The mean of every number of swarm.timing over the samples that have it, by its name."""
    sums: dict[str, list[float]] = {}
    for sample in samples:
        for name, value in sample.timing.items():
            if isinstance(value, int | float):
                sums.setdefault(name, []).append(float(value))
    return {name: statistics.fmean(values) for name, values in sums.items()}


def stage_parts(server: dict[str, float]) -> list[float]:
    """Compute per decoded token of each stage in ring order, ms."""
    stages: list[float] = []
    while (value := server.get(f"stage{len(stages)}_ms")) is not None:
        stages.append(value)
    return stages


def _duration_s(samples: Sequence[Sample]) -> float:
    if not samples:
        return 0.0
    return max(sample.ended_s for sample in samples) - min(sample.sent_s for sample in samples)
