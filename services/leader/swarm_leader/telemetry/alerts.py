"""Which events people are told of, each once and not too many. Pure: the caller has the clock."""

from collections import deque
from dataclasses import dataclass

from swarm_leader.domain.telemetry_records import NodeEvent

AGAIN_S = 900.0  # shortest time between two alerts of one kind about one machine
HOUR_S = 3600.0
HOUR_MAX = 20  # alerts an hour; what is beyond is counted in the next one
REMEMBERED_MAX = 10_000
# A machine that is away for a moment is none of it: its lease decides.
KINDS = {"lost", "stage_crashed", "incident_opened", "replacement_proposed", "replacement_done"}
BAD_BANDS = ("to D", "to F")


@dataclass(frozen=True)
class Alert:
    """What people are told. held_back: alerts that were not sent since the last one."""

    event: NodeEvent
    held_back: int = 0

    @property
    def title(self) -> str:
        """One line."""
        whose = self.event.fellow_name or f"pool {self.event.pool}"
        return f"SilentSwarm: {whose}: {self.event.kind.replace('_', ' ')}"

    @property
    def words(self) -> str:
        """All of it."""
        more = f"\n{self.held_back} more alerts were held back." if self.held_back else ""
        return f"{self.event.words}{more}"


class AlertGate:
    """Lets alerts through."""

    def __init__(self) -> None:
        self._told_s: dict[tuple[str, str], float] = {}
        self._sent_s: deque[float] = deque(maxlen=HOUR_MAX)
        self._held_back = 0

    def take(self, event: NodeEvent, now_s: float) -> Alert | None:
        """The alert for an event; None when nobody is to be told, or was told of the same lately."""
        is_bad_grade = event.kind == "graded" and any(band in event.words[:10] for band in BAD_BANDS)
        if event.kind not in KINDS and not is_bad_grade:
            return None
        key = event.kind, event.fellow_id or event.words
        if now_s - self._told_s.get(key, -AGAIN_S) < AGAIN_S:
            self._held_back += 1
            return None
        if len(self._sent_s) == HOUR_MAX and now_s - self._sent_s[0] < HOUR_S:
            self._held_back += 1
            return None
        if len(self._told_s) >= REMEMBERED_MAX:
            self._told_s.clear()
        self._told_s[key] = now_s
        self._sent_s.append(now_s)
        held_back, self._held_back = self._held_back, 0
        return Alert(event, held_back)
