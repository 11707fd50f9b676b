"""How long is waited, and what happened too often: how soon a ring is wired anew, which model only crashes. Pure."""

from collections import defaultdict, deque
from dataclasses import dataclass

LATELY_S = 20.0
FREE = 5  # times in LATELY_S at once: each may be another fault
WAIT_S, WAIT_MAX_S = 0.5, 5.0
CRASHES_MAX = 12  # of one model within CRASHES_S: what dies as often as this dies of what it is asked to do
CRASHES_S = 60.0


@dataclass(frozen=True)
class HealLimits:
    """wait_s: how long somebody to hold a stage, or a line that is down, is waited for.

    poll_s: how often what nobody reports is looked at.
    """

    wait_s: float = 8.0
    poll_s: float = 0.5


class RewirePace:
    """Counts by model: a link that comes and goes must not keep its machines and the ledger at nothing else."""

    def __init__(self) -> None:
        self._wired_s: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=64))

    def wait_s(self, model_id: str, now_s: float) -> float:
        """Count one more, and say how long it waits, in seconds."""
        times = self._wired_s[model_id]
        while times and now_s - times[0] >= LATELY_S:
            times.popleft()
        times.append(now_s)
        surplus = len(times) - FREE
        return min(WAIT_MAX_S, WAIT_S * 2 ** (surplus - 1)) if surplus > 0 else 0.0


class CrashCount:
    """Counts by model."""

    def __init__(self) -> None:
        self._crashed_s: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=CRASHES_MAX))

    def is_too_often(self, model_id: str, now_s: float) -> bool:
        """Count one more crash, and say whether it is the CRASHES_MAX-th within CRASHES_S."""
        times = self._crashed_s[model_id]
        times.append(now_s)
        return len(times) == CRASHES_MAX and now_s - times[0] <= CRASHES_S
