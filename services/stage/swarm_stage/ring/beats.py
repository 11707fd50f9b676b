"""Signs of life on links: when a neighbour's silence is a fault. Pure: the caller tells the time."""

import statistics
from collections import OrderedDict, deque
from dataclasses import dataclass

from silentswarm.ring.v1 import ring_pb2

SLOW_LINE_BYTES_PER_S = 512 * 2**10  # what a batch is promised by: a line three times as slow is still no fault
PROMISE_MAX_S = 60.0  # whatever a neighbour promises
SILENT_PROMISES = 3  # a promise missed so many times over is broken
ROUND_TRIPS_KEPT = 16
STOOD_STILL_CHECKS = 3  # a check that comes so many times too late says that this stage did not run


@dataclass(frozen=True)
class Pace:
    """interval_s: an end that has sent nothing for so long sends a beat. silent_min_s: less is never a fault."""

    interval_s: float = 1.0
    silent_min_s: float = 3.0

    @property
    def check_s(self) -> float:
        """How often silence is looked for, in seconds."""
        return self.interval_s / 2

    def promise_s(self, batch_bytes: int) -> float:
        """Within which time a message of this size is whole at the other end of a slow line, in seconds."""
        return min(PROMISE_MAX_S, max(self.interval_s, batch_bytes / SLOW_LINE_BYTES_PER_S))


class Beats:
    """Numbers this end's beats."""

    def __init__(self) -> None:
        self._sequence = 0

    def next(self, promise_s: float) -> ring_pb2.Beat:
        """The next beat. promise_s: the next message comes within this time."""
        self._sequence += 1
        return ring_pb2.Beat(sequence=self._sequence, interval_ms=round(promise_s * 1000))


class Hearing:
    """What one neighbour has promised, and whether it keeps it.

    Nothing is judged before its first beat (a stage that knows no beats sends none), nor while nobody listens: what
    this stage does not read is not the neighbour's silence. After this stage itself stood still (its machine slept,
    its process was stopped) the neighbour gets the time of one more promise.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._usual_s: float | None = None  # what it promises between small messages
        self._promise_s = 0.0
        self._heard_s = 0.0
        self._checked_s = 0.0  # set with its first promise
        self._excused_until_s = 0.0
        self._is_listening = True

    @property
    def has_beat(self) -> bool:
        """Whether it ever promised anything."""
        return self._usual_s is not None

    def hear(self, now_s: float, beat: ring_pb2.Beat | None = None) -> None:
        """Something whole arrived. beat: None when it was something else, which keeps the promise and makes none."""
        self._heard_s = now_s
        if beat is not None:
            if self._usual_s is None:
                self._checked_s = now_s
            promise_s = min(PROMISE_MAX_S, beat.interval_ms / 1000)
            self._usual_s = promise_s if self._usual_s is None else min(self._usual_s, promise_s)
            self._promise_s = promise_s
        elif self._usual_s is not None:
            self._promise_s = self._usual_s

    def stop_listening(self) -> None:
        """From now on nothing is read."""
        self._is_listening = False

    def listen_again(self, now_s: float) -> None:
        """Reading goes on; what was sent meanwhile is on its way."""
        self._is_listening = True
        self._heard_s = now_s

    def silent_too_long_s(self, now_s: float) -> float | None:
        """For how long it has been silent, in seconds, when that is a fault. To be asked every pace.check_s."""
        late_s = now_s - self._checked_s
        self._checked_s = now_s
        if self._usual_s is None:
            return None
        if late_s > STOOD_STILL_CHECKS * self._pace.check_s:
            self._excused_until_s = now_s + max(self._promise_s, self._pace.interval_s)
        silent_s = now_s - self._heard_s
        limit_s = max(SILENT_PROMISES * self._promise_s, self._pace.silent_min_s)
        if not self._is_listening or silent_s <= limit_s or now_s < self._excused_until_s:
            return None
        return silent_s


class RoundTrips:
    """From a beat to its answer, as far as there were any lately."""

    def __init__(self) -> None:
        self._sent_s: OrderedDict[int, float] = OrderedDict()  # by sequence, those not answered yet
        self._taken_s: deque[float] = deque(maxlen=ROUND_TRIPS_KEPT)

    def sent(self, sequence: int, now_s: float) -> None:
        """A beat leaves now."""
        self._sent_s[sequence] = now_s
        while len(self._sent_s) > ROUND_TRIPS_KEPT:
            self._sent_s.popitem(last=False)

    def answered(self, sequence: int, now_s: float) -> None:
        """An answer came; the same one again says nothing new."""
        sent_s = self._sent_s.pop(sequence, None)
        if sent_s is not None:
            self._taken_s.append(now_s - sent_s)

    @property
    def median_ms(self) -> float | None:
        """Of the last ROUND_TRIPS_KEPT, in ms; None before the first."""
        return statistics.median(self._taken_s) * 1000 if self._taken_s else None
