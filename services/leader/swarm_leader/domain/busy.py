"""How busy a stage was lately, from what its heartbeats say. Pure: the stage's own clock is the only one."""

from collections import deque
from dataclasses import dataclass, field

SPAN_S = 60.0
REPORTS_MAX = 256  # a heartbeat a quarter of a second for as long; faster ones shorten the span


@dataclass
class BusyShare:
    """The last minute of one stage. Reports are counters since its load; one that goes back begins anew."""

    _reports: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=REPORTS_MAX))

    def note(self, loaded_s: float, busy_s: float) -> None:
        """A report. loaded_s: since the load; 0 does not say."""
        reports = self._reports
        if reports and (loaded_s < reports[-1][0] or busy_s < reports[-1][1]):
            reports.clear()
        if loaded_s > 0 and not (reports and loaded_s == reports[-1][0]):
            reports.append((loaded_s, busy_s))
        # One report from before the span stays, so that two far apart still make a share.
        while len(reports) > 2 and reports[1][0] <= loaded_s - SPAN_S:
            reports.popleft()

    @property
    def share(self) -> float | None:
        """0 to 1; None before two reports."""
        if len(self._reports) < 2:
            return None
        (first_s, first_busy_s), (last_s, last_busy_s) = self._reports[0], self._reports[-1]
        return min(1.0, max(0.0, (last_busy_s - first_busy_s) / (last_s - first_s)))
