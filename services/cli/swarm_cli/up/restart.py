"""When a process that died is started again, and when no more. Pure: no clock, no process."""

from collections import deque
from dataclasses import dataclass, field

FIRST_WAIT_S = 0.25
WAIT_MAX_S = 10.0
SETTLED_S = 60.0  # of life, after which the next death counts as the first
AT_ONCE_S = 10.0  # who lives shorter died at once: a start takes seconds where several share two cores
DEATHS_MAX = 5  # at once, within WITHIN_S
WITHIN_S = 60.0


@dataclass
class _Lives:
    """Of one process. at_once_s: its last deaths right after a start."""

    started_s: float
    wait_s: float = FIRST_WAIT_S
    at_once_s: deque[float] = field(default_factory=lambda: deque(maxlen=DEATHS_MAX))


class Restarts:
    """Lives and deaths by process name, and who is due when. Every time is the caller's, in monotonic seconds."""

    def __init__(self) -> None:
        self._lives: dict[str, _Lives] = {}
        self._due_s: dict[str, float] = {}

    def note_start(self, name: str, now_s: float) -> None:
        """A process was started."""
        self._lives.setdefault(name, _Lives(now_s)).started_s = now_s
        self._due_s.pop(name, None)

    def note_death(self, name: str, now_s: float) -> float | None:
        """A process died: seconds until it is started again, twice as long each time; None when it will not stay.

        That is after DEATHS_MAX deaths within WITHIN_S, each right after its start.
        """
        lives = self._lives[name]
        lived_s = now_s - lives.started_s
        if lived_s >= SETTLED_S:
            lives.wait_s = FIRST_WAIT_S
        if lived_s < AT_ONCE_S:
            lives.at_once_s.append(now_s)
        is_full = len(lives.at_once_s) == DEATHS_MAX
        if is_full and now_s - lives.at_once_s[0] <= WITHIN_S:
            return None
        wait_s = lives.wait_s
        lives.wait_s = min(wait_s * 2, WAIT_MAX_S)
        self._due_s[name] = now_s + wait_s
        return wait_s

    def take_due(self, now_s: float) -> list[str]:
        """Who is to be started now, each once."""
        due = [name for name, due_s in self._due_s.items() if due_s <= now_s]
        for name in due:
            del self._due_s[name]
        return due

    def next_in_s(self, now_s: float) -> float | None:
        """Seconds until the next is due; None when nobody is."""
        return max(0.0, min(self._due_s.values()) - now_s) if self._due_s else None
