"""Events of machines on their way to the disk: bounded, and none so often that it pushes others out. Writes nothing."""

from collections import deque
from collections.abc import Callable

from swarm_core.clock import Clock

from swarm_leader.domain.telemetry_records import NodeEvent

WAITING_MAX = 1000
AGAIN_S = 10.0  # shortest time between two events of one kind of one machine
KINDS_MAX = 10_000
OFTEN_OK = {"incident_opened", "incident_closed", "stage_crashed"}  # each tells of something else
OFTEN_MAX = 100  # of those in AGAIN_S


class Timeline:
    """What happened since it was last written."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[NodeEvent] = deque(maxlen=WAITING_MAX)
        self._told: dict[tuple[str, str], tuple[float, int]] = {}  # since when, and how often
        self._readers: list[Callable[[NodeEvent], None]] = []

    def read_by(self, reader: Callable[[NodeEvent], None]) -> None:
        """Tell this reader of every event at once; it must not wait."""
        self._readers.append(reader)

    def add(self, kind: str, words: str, pool: str, fellow_id: str = "", fellow_name: str = "") -> None:
        """Something happened just now. A flapping machine is told of every 10 s."""
        now_s = self._clock.monotonic_s()
        began_s, count = self._told.get((fellow_id, kind), (now_s, 0))
        if now_s - began_s >= AGAIN_S:
            began_s, count = now_s, 0
        if count >= (OFTEN_MAX if kind in OFTEN_OK else 1):
            return
        if len(self._told) >= KINDS_MAX:
            self._told.clear()
        self._told[fellow_id, kind] = began_s, count + 1
        event = NodeEvent(self._clock.unix_s(), pool, fellow_id, fellow_name, kind, words[:1000])
        self._waiting.append(event)
        for reader in self._readers:
            reader(event)

    def waiting(self) -> list[NodeEvent]:
        """What is not written yet, oldest first."""
        return list(self._waiting)

    def written(self, count: int) -> None:
        """The oldest ones are on disk."""
        for _ in range(min(count, len(self._waiting))):
            self._waiting.popleft()
