"""How a machine did, in one number with its reasons, and a band that does not churn. Pure.

Bands and points are ours: docs/decisions/0019-grades-explain-themselves.md.
"""

from dataclasses import dataclass

POINTS = 100.0
# Lowest score of each band, best first.
BANDS = (("A", 90.0), ("B", 75.0), ("C", 60.0), ("D", 40.0), ("F", 0.0))
CLEARLY = 3.0  # points beyond a band's edge before another band is believed
DWELL_S = 60.0  # shortest stay in a band
_WORTH_SAYING = 0.05


@dataclass(frozen=True)
class Signals:
    """What a grade goes by, over the machine's window. None is unknown, and costs nothing.

    slowdown: compute of a token lately against what is usual.
    """

    availability: float | None
    observed_s: float
    reconnects: int = 0
    crashes: int = 0
    out_of_memory: int = 0
    errors: int = 0
    round_trip_ms: float | None = None
    temperature_c: float | None = None
    slowdown: float | None = None


@dataclass(frozen=True)
class Reason:
    """What costs points. words: for people."""

    signal: str
    points: float
    words: str


@dataclass(frozen=True)
class Score:
    """0 to 100, with what it lacks, largest first."""

    score: float
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True)
class Grade:
    """A band and since when; score and reasons are of now."""

    band: str
    since_s: float
    score: Score


def judge(signals: Signals) -> Score | None:
    """The score. None while availability is unknown: nobody knows yet how it does."""
    if signals.availability is None:
        return None
    reasons = sorted(_reasons(signals), key=lambda reason: -reason.points)
    lost = sum(reason.points for reason in reasons)
    return Score(max(0.0, POINTS - lost), tuple(reasons))


def grade(score: Score, before: Grade | None, now_s: float) -> Grade:
    """The band for a score: another one than before only when clearly so, and after the band before has lasted."""
    if before is None:
        return Grade(band_of(score.score), now_s, score)
    if now_s - before.since_s >= DWELL_S:
        at_least, at_most = band_of(score.score - CLEARLY), band_of(score.score + CLEARLY)
        if _rank(at_most) > _rank(before.band):
            return Grade(at_most, now_s, score)
        if _rank(at_least) < _rank(before.band):
            return Grade(at_least, now_s, score)
    return Grade(before.band, before.since_s, score)


def band_of(score: float) -> str:
    """The band a score alone is in."""
    return next(band for band, lowest in BANDS if score >= lowest or band == "F")


def _rank(band: str) -> int:
    """0 is best."""
    return [name for name, _ in BANDS].index(band)


def _reasons(signals: Signals) -> list[Reason]:
    """Everything that costs points."""
    minutes = max(1, round(signals.observed_s / 60))
    missed = 1 - (signals.availability or 0)
    found = [
        ("availability", min(75.0, missed * 250), f"{100 * missed:.1f} of 100 heartbeats did not come"),
        ("reconnects", min(20.0, 4.0 * signals.reconnects), _often("its link broke", signals.reconnects, minutes)),
        ("crashes", min(40.0, 10.0 * signals.crashes), _often("a stage crashed", signals.crashes, minutes)),
        ("memory", min(15.0, 5.0 * signals.out_of_memory), _often("memory ran out", signals.out_of_memory, minutes)),
        ("errors", min(10.0, 0.5 * signals.errors), _often("an error", signals.errors, minutes)),
    ]
    if (trip_ms := signals.round_trip_ms) is not None:
        found.append(("round_trip", _beyond(trip_ms, 100, 500, 10), f"{trip_ms:.0f} ms to the leader and back"))
    if (hot_c := signals.temperature_c) is not None:
        found.append(("temperature", _beyond(hot_c, 85, 100, 15), f"{hot_c:.0f} degrees Celsius"))
    if (slow := signals.slowdown) is not None:
        found.append(("slowdown", _beyond(slow, 1.3, 2.3, 15), f"a token takes {slow:.1f} times as long as usual"))
    return [Reason(signal, points, words) for signal, points, words in found if points >= _WORTH_SAYING]


def _beyond(figure: float, harmless: float, worst: float, points: float) -> float:
    """Nothing up to what is harmless, all points from the worst on, evenly in between."""
    return points * min(1.0, max(0.0, (figure - harmless) / (worst - harmless)))


def _often(what: str, times: int, minutes: int) -> str:
    return f"{what} {'once' if times == 1 else f'{times} times'} in {minutes} min"
