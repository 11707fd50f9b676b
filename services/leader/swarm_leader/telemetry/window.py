"""What one machine did over the last hour, in memory that cannot grow. Pure: times are the caller's, of one clock."""

from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import ceil, isnan, nan

SAMPLES_MAX = 1024  # heartbeats of a machine; 51 min at one in 3 s
WINDOW_S = 3600.0
MARKS_MAX = 256  # reconnects, crashes, ... of a machine; more than that in an hour is as bad
STEPS_MAX = 256  # replies of which a stage's compute is remembered
STEPS_MIN = 12  # before that many replies nothing is usual
LATELY = 6  # replies that are lately
INTERVALS_MIN = 2  # heartbeats that must have been due before availability is known

# What a heartbeat says, one column each; NaN in a column is unknown.
COLUMNS = ("leader_round_trip_ms", "peer_round_trip_ms", "temperature_c", "power_w", "busy_share", "cpu_busy_share")


@dataclass(frozen=True)
class Sample:
    """One heartbeat. None: not said. Counters have grown since the start of the fellow's process."""

    leader_round_trip_ms: float | None = None
    peer_round_trip_ms: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    busy_share: float | None = None
    cpu_busy_share: float | None = None
    memory_free_bytes: int | None = None
    disk_free_bytes: int | None = None
    out_of_memory: int | None = None
    errors: int | None = None
    stage_crashes: int | None = None


def percentile(figures: Iterable[float | None], share: float) -> float | None:
    """The nearest-rank percentile of the known figures; None when there are none. share: above 0 and up to 1."""
    known = sorted(figure for figure in figures if figure is not None and not isnan(figure))
    return known[max(0, ceil(share * len(known)) - 1)] if known else None


def median(figures: Iterable[float | None]) -> float | None:
    """percentile of a half."""
    return percentile(figures, 0.5)


class Marks:
    """When something happened, the newest ones, and how often each time."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque(maxlen=MARKS_MAX)

    def add(self, at_s: float, times: int = 1) -> None:
        """It happened."""
        if times > 0:
            self._marks.append((at_s, times))

    def count(self, now_s: float) -> int:
        """How often within the window."""
        while self._marks and self._marks[0][0] <= now_s - WINDOW_S:
            self._marks.popleft()
        return sum(times for _, times in self._marks)


class Window:
    """One machine, from when it was first seen. Every note is O(1)."""

    def __init__(self, now_s: float, interval_s: float) -> None:
        """interval_s: between two heartbeats that are due."""
        self.began_s = now_s
        self.interval_s = interval_s
        self.last: Sample | None = None
        self.reconnects, self.crashes = Marks(), Marks()
        self.out_of_memory, self.errors = Marks(), Marks()
        self._count = 0
        self._at_s = array("d", [nan]) * SAMPLES_MAX
        self._columns = {name: array("d", [nan]) * SAMPLES_MAX for name in COLUMNS}
        self._counted: dict[str, int] = {}
        self._steps: dict[str, deque[float]] = {}

    def note_heartbeat(self, now_s: float, sample: Sample) -> None:
        """A heartbeat came."""
        at = self._count % SAMPLES_MAX
        self._count += 1
        self._at_s[at] = now_s
        for name, column in self._columns.items():
            figure = getattr(sample, name)
            column[at] = nan if figure is None else figure
        self.last = sample
        self._grow(now_s, "out_of_memory", sample.out_of_memory, self.out_of_memory)
        self._grow(now_s, "errors", sample.errors, self.errors)
        self._grow(now_s, "stage_crashes", sample.stage_crashes, self.crashes)

    def note_crash(self, now_s: float) -> None:
        """A stage of it crashed. A machine that counts its crashes itself is believed in that alone."""
        if "stage_crashes" not in self._counted:
            self.crashes.add(now_s)

    def note_round_trip(self, round_trip_ms: float) -> None:
        """A PING came back: stands for the newest heartbeat's own, where that said none."""
        at = (self._count - 1) % SAMPLES_MAX
        if self._count and isnan(self._columns["leader_round_trip_ms"][at]):
            self._columns["leader_round_trip_ms"][at] = round_trip_ms

    def note_step(self, stage: str, step_ms: float) -> None:
        """A reply's compute for one token in a stage of it. Only its newest stage is kept."""
        if stage not in self._steps:
            self._steps = {stage: deque(maxlen=STEPS_MAX)}
        self._steps[stage].append(step_ms)

    def observed_s(self, now_s: float) -> float:
        """What the figures look back over."""
        return max(0.0, min(now_s - self.began_s, WINDOW_S, SAMPLES_MAX * self.interval_s))

    def availability(self, now_s: float) -> float | None:
        """Heartbeats that came, of those that were due, 0 to 1. None until two were due.

        What counts as due goes by the time since the machine was first seen, so that none hides an outage by coming
        back.
        """
        observed_s = self.observed_s(now_s)
        due = int(observed_s / self.interval_s + 1e-6)
        if due < INTERVALS_MIN:
            return None
        since_s = now_s - observed_s
        came = sum(1 for at_s in self._recent(self._at_s) if since_s <= at_s <= now_s)
        return min(1.0, came / due)

    def figures(self, name: str, now_s: float) -> Sequence[float]:
        """A column within the window; NaN where it is unknown. name: one of COLUMNS."""
        since_s = now_s - self.observed_s(now_s)
        pairs = zip(self._recent(self._at_s), self._recent(self._columns[name]), strict=True)
        return [figure for at_s, figure in pairs if at_s >= since_s]

    def counts(self, name: str) -> bool:
        """Whether the machine itself says this counter."""
        return name in self._counted

    def slowdown(self) -> float | None:
        """Compute of a token lately against what is usual; 1 is as usual. None while nothing is usual."""
        for steps in self._steps.values():
            if len(steps) >= STEPS_MIN:
                usual, lately = median(steps), median(list(steps)[-LATELY:])
                if usual and lately is not None:
                    return lately / usual
        return None

    def _recent(self, column: "array[float]") -> "array[float]":
        return column if self._count >= SAMPLES_MAX else column[: self._count]

    def _grow(self, now_s: float, name: str, count: int | None, marks: Marks) -> None:
        """A counter that starts at 0 with each process: what it grew by counts, and all of it after a restart."""
        if count is None:
            return
        before = self._counted.get(name)
        self._counted[name] = count
        if before is not None:
            marks.add(now_s, count - before if count >= before else count)
